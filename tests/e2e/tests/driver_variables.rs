//! Variables of the environment that NVIDIA documents for its driver (`docs/configuration.md`).

use outboard_e2e::{Folder, Outcome, Program, Server};

/// The same directly on the device and through a server.
fn run(server: &Server, variables: &[(&str, &str)]) -> [Outcome; 2] {
    let program = Program::new("driver_variables");
    let program = variables.iter().fold(program, |program, (name, value)| program.env(name, value));
    [program.directly(), program.through(server)]
}

fn expect(outcomes: &[Outcome; 2], lines: &[&str]) {
    for outcome in outcomes {
        outcome.expect_success("driver_variables");
        for line in lines {
            assert!(outcome.stdout.lines().any(|said| said == *line), "{line}: {outcome:?}");
        }
    }
}

#[test]
fn launches_wait_if_they_are_to() {
    let server = Server::start();
    for (value, when, error) in [
        ("", "before", "cudaSuccess"),
        ("0", "before", "cudaSuccess"),
        ("1", "when", "cudaErrorIllegalAddress"),
    ] {
        let outcomes = run(&server, &[("CUDA_LAUNCH_BLOCKING", value)]);
        let returns = format!("a launch returns {when} the kernel is done");
        expect(&outcomes, &[&returns, &format!("a faulty launch gives {error}")]);
    }
}

#[test]
fn modules_are_loaded_as_is_said() {
    let server = Server::start();
    for (value, how) in
        [("EAGER", "eagerly"), ("eager", "eagerly"), ("LAZY", "lazily"), ("no", "lazily")]
    {
        let outcomes = run(&server, &[("CUDA_MODULE_LOADING", value)]);
        expect(&outcomes, &[&format!("modules are loaded {how}")]);
    }
}

#[test]
fn errors_are_told_of_where_is_said() {
    let server = Server::start();
    let folder = Folder::create();
    let file = folder.path("log");
    let expected = [
        "[CUDA][E] Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuMemFree_v2",
        "[CUDA][E] Returning 2 (CUDA_ERROR_OUT_OF_MEMORY) from cuMemAlloc_v2",
    ];
    let outcomes = run(&server, &[("CUDA_LOG_FILE", &file)]);
    expect(&outcomes, &[]);
    let log = std::fs::read_to_string(&file).expect("the file is there");
    for text in expected {
        assert_eq!(log.matches(text).count(), 2, "each run adds to it: {log}");
    }
    for (stream, of) in [
        ("stdout", (|outcome| &outcome.stdout) as fn(&Outcome) -> &String),
        ("stderr", |outcome| &outcome.stderr),
    ] {
        for outcome in &run(&server, &[("CUDA_LOG_FILE", stream)]) {
            outcome.expect_success(stream);
            for text in expected {
                assert_eq!(of(outcome).matches(text).count(), 1, "{stream}: {outcome:?}");
            }
        }
    }
    // Nobody is harmed if it cannot be written.
    expect(&run(&server, &[("CUDA_LOG_FILE", "/no/such/folder/log")]), &[]);
}

#[test]
fn an_order_that_there_is_not_is_an_error() {
    let server = Server::start();
    for (value, works) in
        [("PCI_BUS_ID", true), ("FASTEST_FIRST", true), ("wrong", false), ("", false)]
    {
        for outcome in &run(&server, &[("CUDA_DEVICE_ORDER", value)]) {
            assert_eq!(outcome.status.success(), works, "{value:?}: {outcome:?}");
            let error = outcome.stdout.contains("CUDA_ERROR_INVALID_DEVICE");
            assert_eq!(error, !works, "{value:?}: {outcome:?}");
        }
    }
}
