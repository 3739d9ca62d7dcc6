"""Values that pass between rooms: frozen, validated and free of MLX."""
