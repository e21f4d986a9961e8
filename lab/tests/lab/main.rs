//! Labs on this machine: that they are accurate, do what their scenarios say, and leave nothing behind.
//!
//! They take root and the tools `tests/install-packages.sh` installs. Where a lab cannot run, each test says that it was
//! skipped, or fails if `ROPEWAY_LAB_REQUIRED=1`.

mod accuracy;
mod bad_input;
mod compare;
mod faults;
mod life;
mod simulate;
mod support;
