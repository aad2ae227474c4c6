"""Crons: submits what is due of the declared entries, once for each due instant."""
