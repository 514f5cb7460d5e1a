//! Servers whose driver is older than the client, or lacks functions: programs find what they would
//! find natively.

use outboard_e2e::{Driver, Folder, Program, Server, dist};
use outboard_test_support::skip;

/// A server with a driver that says it is of this version.
fn of_version(version: &str) -> Server {
    Server::start_with(&["--driver", "cpu"], &[("OUTBOARD_CPU_DRIVER_VERSION", version)])
}

#[test]
fn functions_that_came_later_are_not_found() {
    let server = of_version("12040");
    // 12.8 and 13.0; the last one is answered by the client, and yet not older drivers'.
    let later = [
        "cuMemcpyBatchAsync",
        "cuCheckpointProcessLock",
        "cuMemPrefetchBatchAsync",
        "cuLogsCurrent",
    ];
    let program = later
        .iter()
        .fold(Program::new("entry_points").arg("12040"), |program, name| program.arg(name));
    program.through(&server).expect_success("a driver of CUDA 12.4");
}

#[test]
fn runtimes_work_with_an_older_driver_of_their_major_version() {
    let server = of_version("12040");
    Program::new("registered_static_12_9")
        .through(&server)
        .expect_success("a runtime of CUDA 12.9");
}

#[test]
fn runtimes_of_a_newer_major_version_say_so() {
    let server = of_version("12040");
    let outcome = Program::new("vector_add").through(&server);
    assert!(!outcome.status.success());
    assert!(
        outcome.stdout.contains("cudaErrorInsufficientDriver"),
        "{}{}",
        outcome.stdout,
        outcome.stderr
    );
}

fn word(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// Takes an exported symbol out of a shared library: it gets another name, and is weak, so that the
/// library's own uses of it are not missed.
fn hide(library: &mut [u8], name: &str) {
    const DYNAMIC_SYMBOLS: usize = 11;
    const WEAK: u8 = 2;
    let (table, count) = (word(library, 0x28, 8), word(library, 0x3c, 2));
    let section = |library: &[u8], index: usize, field: usize, len| {
        word(library, table + 64 * index + field, len)
    };
    let index = (0..count).find(|index| section(library, *index, 4, 4) == DYNAMIC_SYMBOLS).unwrap();
    let (symbols, bytes) = (section(library, index, 0x18, 8), section(library, index, 0x20, 8));
    let names = section(library, section(library, index, 0x28, 4), 0x18, 8);
    let symbol = (symbols..symbols + bytes)
        .step_by(24)
        .find(|symbol| {
            let at = names + word(library, *symbol, 4);
            library[at..].starts_with(name.as_bytes()) && library[at + name.len()] == 0
        })
        .unwrap();
    library[symbol + 4] = WEAK << 4 | library[symbol + 4] & 0xf;
    let at = names + word(library, symbol, 4);
    library[at] = b'x';
}

/// A server with the software device, but for these functions.
fn without(functions: &[&str], run: impl FnOnce(&Server)) {
    let mut library = std::fs::read(dist().join("lib/outboard/liboutboard-cpu.so")).unwrap();
    for name in functions {
        hide(&mut library, name);
    }
    let folder = Folder::create();
    let path = folder.path("driver.so");
    std::fs::write(&path, library).unwrap();
    run(&Server::start_with(&["--driver", &path], &[]));
}

#[test]
fn kernels_are_described_by_their_images_where_the_driver_does_not_tell() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let newer = [
        "cuFuncGetParamInfo",
        "cuKernelGetParamInfo",
        "cuModuleEnumerateFunctions",
        "cuModuleGetFunctionCount",
    ];
    without(&newer, |server| {
        for program in ["vector_add", "parameters", "functions", "driver_api", "driver_objects"] {
            Program::new(program).through(server).expect_success(program);
        }
    });
}

#[test]
fn functions_that_the_driver_does_not_export_are_not_found() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    without(&["cuLinkCreate", "cuLinkCreate_v2"], |server| {
        let outcome = Program::new("entry_points").arg("13000").arg("cuLinkCreate").through(server);
        outcome.expect_success("a driver without a linker");
    });
    let whole = Server::start_with(&["--driver", "cpu"], &[]);
    let outcome = Program::new("entry_points").arg("13000").arg("cuLinkCreate").through(&whole);
    assert!(!outcome.status.success(), "the same with a linker must not pass");
}
