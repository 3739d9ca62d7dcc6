"""`akunu doctor --full`: what a model does on this machine, as a page that can be published."""
