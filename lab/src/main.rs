//! The command `ropeway-lab`; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ropeway_lab::main()
}
