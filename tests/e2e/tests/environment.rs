//! What `outboard run` puts into a program's environment, and what Python packages make of it.

use std::process::Command;

use outboard_e2e::{Server, command, dist};

fn run(server: &Server, program: &[&str], given: &[(&str, &str)]) -> String {
    let mut command = command();
    command.args(["run", "--server", server.address(), "--"]).args(program);
    for name in ["LD_LIBRARY_PATH", "PYTHONPATH", "TRITON_LIBCUDA_PATH"] {
        command.env_remove(name);
    }
    let output = command.envs(given.iter().copied()).output().expect("outboard starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SHOW: [&str; 3] = ["sh", "-c", "echo \"$LD_LIBRARY_PATH $PYTHONPATH $TRITON_LIBCUDA_PATH\""];

#[test]
fn a_program_finds_the_libraries() {
    let server = Server::start();
    let lib = dist().join("lib/outboard");
    let (client, python) =
        (lib.join("client").display().to_string(), lib.join("python").display().to_string());
    assert_eq!(run(&server, &SHOW, &[]), format!("{client} {python} {client}\n"));
    for name in ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"] {
        assert!(
            lib.join("client").join(name).exists(),
            "{name} is there for who asks for that name"
        );
    }
}

#[test]
fn what_the_user_set_is_kept() {
    let server = Server::start();
    let given = [("LD_LIBRARY_PATH", "/a"), ("PYTHONPATH", "/b"), ("TRITON_LIBCUDA_PATH", "/c")];
    let lib = dist().join("lib/outboard").display().to_string();
    assert_eq!(run(&server, &SHOW, &given), format!("{lib}/client:/a {lib}/python:/b /c\n"));
}

/// The part of JAX that decides whether there is a GPU.
const JAX: &str = "
import importlib, pkgutil, sys, types
jax, src, hardware = types.ModuleType('jax'), types.ModuleType('jax._src'), types.ModuleType('jax._src.hardware_utils')
hardware.has_visible_nvidia_gpu = lambda: False
src.hardware_utils = hardware
sys.modules.update({'jax': jax, 'jax._src': src, 'jax._src.hardware_utils': hardware})
import jax_plugins
for _, name, _ in pkgutil.iter_modules(jax_plugins.__path__, 'jax_plugins.'):
    importlib.import_module(name).initialize()
print(hardware.has_visible_nvidia_gpu())
";

#[test]
fn jax_is_told_of_the_device_that_has_no_file() {
    let server = Server::start();
    assert_eq!(run(&server, &["python3", "-c", JAX], &[]), "True\n");
    // Without a server it is not: the module may be in the path for other reasons.
    let python = dist().join("lib/outboard/python");
    let output = Command::new("python3")
        .args(["-c", JAX])
        .env("PYTHONPATH", python)
        .env_remove("OUTBOARD_SERVER")
        .output();
    assert_eq!(String::from_utf8_lossy(&output.expect("python3 starts").stdout), "False\n");
}
