"""`lhkit chat` and `lhkit chats`: the terminal chat, and the chats that are kept."""
