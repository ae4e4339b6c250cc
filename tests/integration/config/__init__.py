"""What a person sees after a mistake."""
