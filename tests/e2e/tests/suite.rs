//! Every test program, directly on the device and through a server: both end well, and their output is the same.

use libtest_mimic::{Arguments, Failed, Trial};
use outboard_e2e::{Case, Driver, Server, suite};
use std::sync::{Arc, OnceLock};

fn main() {
    let mut arguments = Arguments::from_args();
    // Programs have threads of their own; two at once keep a small machine busy.
    arguments.test_threads.get_or_insert(2);
    let server = Arc::new(OnceLock::new());
    let trials = suite()
        .into_iter()
        .map(|case| {
            let server = Arc::clone(&server);
            // Some find a worker that waited for them, some do not: nobody may notice.
            let start = || Server::start_with(&["--driver", Driver::chosen().name(), "--warm", "1"], &[]);
            Trial::test(case.name.clone(), move || compare(&case, server.get_or_init(start)))
        })
        .collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    // `exit` skips destructors, so the server is stopped first.
    drop(server);
    conclusion.exit();
}

fn compare(case: &Case, server: &Server) -> Result<(), Failed> {
    let program = case.program();
    let direct = program.directly();
    if !direct.status.success() {
        return Err(format!("directly: {}\n{}{}", direct.status, direct.stdout, direct.stderr).into());
    }
    let remote = program.through(server);
    if !remote.status.success() {
        return Err(format!("through a server: {}\n{}{}", remote.status, remote.stdout, remote.stderr).into());
    }
    if direct.stdout != remote.stdout {
        return Err(
            format!("output differs\n--- directly\n{}--- through a server\n{}", direct.stdout, remote.stdout).into()
        );
    }
    Ok(())
}
