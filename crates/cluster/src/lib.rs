//! What the roles of Ropeway say to each other.
