"""Providers of models, which answer a conversation. Each is imported when it is used."""
