"""Telling callback URLs that their jobs have ended: signed, retried for a day, never to a private address."""
