"""Measurements of gramercy beside its peers. `scripts/bench` runs them; the product never imports this."""
