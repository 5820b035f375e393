"""What a gang needs: from the annotations of its pods, or from the controller that makes them."""
