"""Pure tensor code: no state, no configuration, no import but torch."""
