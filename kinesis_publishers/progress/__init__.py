"""How far an application has processed its streams: its rows in a store, and who writes them."""
