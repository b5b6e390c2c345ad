"""`gramercy doctor`: does everything that live images and the server need work on this machine?"""
