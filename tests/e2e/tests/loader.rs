//! Test programs while the loader holds its lock: a library's constructor, and its destructor, may
//! use CUDA. The programs run directly on the device and through a server, over TCP and in shared
//! memory (decision 79). None of the libraries takes part in what the lock is for.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use object::{Object as _, ObjectSymbol as _};
use outboard_e2e::{Case, Driver, Outcome, Program, Server, dist, programs, suite};

/// What runs like this: programs of all families whose own threads look up no functions, which
/// would wait for the loader, natively too.
const PROGRAMS: &[&str] = &[
    "allocations",
    "arrays",
    "atomics",
    "attributes",
    "batches",
    "device_printf",
    "driver_memory",
    "driver_objects",
    "entry_points",
    "exit_functions",
    "fork",
    "graph_capture",
    "graph_host",
    "host_functions",
];

/// A program that waits for somebody waits for ever.
const LIMIT: Duration = Duration::from_secs(90);

fn main() {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(if Driver::chosen() == Driver::Nvidia { 1 } else { 2 });
    let server = Arc::new(OnceLock::new());
    let cases = suite().into_iter().filter(|case| PROGRAMS.contains(&case.name.as_str()));
    let trials = cases.flat_map(|case| {
        ["constructor", "destructor"].map(|place| {
            let (server, case) = (Arc::clone(&server), case.clone());
            let start = || Server::start_with(&["--driver", Driver::chosen().name()], &[]);
            Trial::test(format!("{} in a {place}", case.name), move || {
                run(&case, place, server.get_or_init(start))
            })
        })
    });
    let symbols = Trial::test("no library registers destructors with the loader", registers_none);
    let conclusion = libtest_mimic::run(&arguments, trials.chain([symbols]).collect());
    // `exit` skips destructors, so the server is stopped first.
    drop(server);
    conclusion.exit();
}

/// Each of the three ways once in a constructor or a destructor.
fn run(case: &Case, place: &str, server: &Server) -> Result<(), Failed> {
    let program = within(&case.program(), place);
    if place == "constructor" {
        check("directly", &program.directly())?;
        check("over TCP", &program.through(server))
    } else {
        check("in shared memory", &program.sharing_memory().through(server))
    }
}

/// The program, with its `main` in such a place.
fn within(program: &Program, place: &str) -> Program {
    let first = programs().join("loader_lock");
    program
        .clone()
        .env("LD_PRELOAD", &first.display().to_string())
        .env("LOADER_LOCK", place)
        .at_most(LIMIT)
}

fn check(way: &str, outcome: &Outcome) -> Result<(), Failed> {
    if outcome.status.success() {
        return Ok(());
    }
    Err(format!("{way}: {}\n{}{}", outcome.status, outcome.stdout, outcome.stderr).into())
}

/// The libraries that live in programs.
const LIBRARIES: [&str; 6] = [
    "client/libcuda.so.1",
    "client/libnvidia-ml.so.1",
    "client/libnccl.so.2",
    "client/libcufile.so.0",
    "liboutboard-cpu.so",
    "liboutboard-mpi.so",
];

/// The C library's `__cxa_thread_atexit_impl` takes the lock: each library has one of its own.
fn registers_none() -> Result<(), Failed> {
    for library in LIBRARIES {
        let path = dist().join("lib/outboard").join(library);
        let data = std::fs::read(&path)?;
        let file = object::File::parse(&*data)?;
        let mut taken = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
        if taken.any(|symbol| symbol.name() == Ok("__cxa_thread_atexit_impl")) {
            return Err(format!("{library} takes __cxa_thread_atexit_impl from elsewhere").into());
        }
    }
    Ok(())
}
