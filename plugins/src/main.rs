//! multus-cni-plugins. All of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    plugins::main()
}
