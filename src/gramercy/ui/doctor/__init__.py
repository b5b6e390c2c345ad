"""`gramercy doctor`: check everything that live images and the server need on this machine."""
