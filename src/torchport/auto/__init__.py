"""Run-time migration: what is changed in a live process so that a CUDA script runs elsewhere.

Everything here runs in the user's process: imports are light, torch is patched only once the script imports
it, and `undo` puts back every attribute as it was.
"""
