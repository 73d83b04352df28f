"""Text on a screen: tables that fit, foreign text made harmless, results as JSON or words."""
