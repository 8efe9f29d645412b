"""What leaves the package as files: vectors of images, and whole models for other machines and programs."""
