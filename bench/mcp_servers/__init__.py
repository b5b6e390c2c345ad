"""Servers with the same tool `echo`: one small program for each contender."""
