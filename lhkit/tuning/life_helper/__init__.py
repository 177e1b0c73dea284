"""What life-helper's training conversations are made of: phrases, worlds, talk. No training."""
