"""Boards for people who judge: A/B votes and reviews of kept chats.

Built from the panel's parts; votes and labels are stored as records are.
"""
