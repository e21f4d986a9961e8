//! Ropeway at the edge of the operating system.
