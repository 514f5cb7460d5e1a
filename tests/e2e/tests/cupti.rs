//! CUPTI, which frameworks ask for its version before they use a device: JAX gives up where it is
//! not told.

use std::path::Path;
use std::process::Command;

use outboard_e2e::{Server, dist};

/// Asks the library that is named; prints what it answers and its version.
const ASK: &str = "import ctypes, sys\n\
    assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n\
    version = ctypes.c_uint32()\n\
    print(ctypes.CDLL(sys.argv[1]).cuptiGetVersion(ctypes.byref(version)), version.value)\n";

#[test]
fn its_version_is_told() {
    let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv");
    let library = venv.join("runtimes/cupti-13.5/nvidia/cu13/lib/libcupti.so.13");
    assert!(library.exists(), "`cargo xtask toolchain` installs {}", library.display());
    let server = Server::start();
    let mut command = Command::new(dist().join("bin/outboard"));
    command
        .args(["run", "--server", server.address(), "--"])
        .arg(venv.join("bin/python3"))
        .args(["-c", ASK]);
    let output =
        command.arg(library).env("OUTBOARD_CONFIG", "none").output().expect("outboard starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), "0 130500", "{}", String::from_utf8_lossy(&output.stderr));
}
