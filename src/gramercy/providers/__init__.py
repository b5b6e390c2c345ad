"""Models: who answers a conversation. Each provider is imported when it is used."""
