//! Workers that waited for their clients, with contexts made ahead: programs behave as with any other worker.

use std::time::Duration;

use outboard_e2e::{Driver, Program, Server, within};

/// A server with so many workers, once they wait.
fn serve(warm: usize, more: &[&str], env: &[(&str, &str)]) -> Server {
    let count = warm.to_string();
    let args = [&["--driver", Driver::chosen().name(), "--warm", &count], more].concat();
    let server = Server::start_with(&args, &[env, &[("OUTBOARD_LOG", "outboard_server=debug")]].concat());
    wait(&server, warm);
    server
}

/// Waits until so many workers have been ready since the server started.
fn wait(server: &Server, ready: usize) {
    let count = || server.log().lines().filter(|line| line.contains("\"message\":\"warm\"")).count();
    assert!(within(Duration::from_secs(60), || count() >= ready), "{}", server.log());
}

/// Sessions so far that were given a worker that had waited.
fn warm_sessions(server: &Server) -> usize {
    server.log().lines().filter(|line| line.contains("\"warm\":true")).count()
}

#[test]
fn contexts_made_ahead_do_not_show() {
    let server = serve(1, &[], &[]);
    // Flags set before the first use, contexts of one's own, a device reset, launches, memory, errors that end a context.
    for (index, name) in ["contexts", "driver_objects", "vector_add", "driver_memory", "fault_null"].iter().enumerate()
    {
        let program = Program::new(name);
        let (direct, remote) = (program.directly(), program.through(&server));
        direct.expect_success(name);
        remote.expect_success(name);
        assert_eq!(direct.stdout, remote.stdout, "{name}");
        assert_eq!(warm_sessions(&server), index + 1, "{}", server.log());
        wait(&server, index + 2);
    }
}

#[test]
fn sessions_give_back_what_they_do_not_use() {
    if Driver::chosen() != Driver::Cpu {
        return;
    }
    let server = serve(1, &["--warm-devices", "0,1"], &[("OUTBOARD_CPU_DEVICES", "3")]);
    for (index, list) in ["/1", "/2", "/2,/0", ""].iter().enumerate() {
        let list: Vec<String> = list.split(',').map(|device| format!("{}{device}", server.address())).collect();
        let outcome = Program::new("contexts").through_list(&list.join(","));
        outcome.expect_success("contexts");
        wait(&server, index + 2);
    }
    assert_eq!(warm_sessions(&server), 4, "{}", server.log());
}

#[test]
fn more_programs_than_waiting_workers() {
    let server = serve(2, &[], &[]);
    let program = Program::new("histogram");
    let wanted = program.directly().stdout;
    let clients: Vec<_> = (0..6).map(|_| program.start_through(&server)).collect();
    for client in clients {
        let outcome = client.finish();
        outcome.expect_success("one of six");
        assert_eq!(outcome.stdout, wanted);
    }
    assert!(warm_sessions(&server) >= 2, "{}", server.log());
    // Those that were taken are replaced.
    wait(&server, 4);
    assert!(within(Duration::from_secs(60), || server.workers().len() == 2), "{}", server.log());
}

#[test]
fn devices_to_wait_on_that_are_not_there_cost_nothing() {
    let server = serve(1, &["--warm-devices", "7"], &[]);
    Program::new("vector_add").through(&server).expect_success("vector_add");
    assert_eq!(warm_sessions(&server), 1);
}

#[test]
fn questions_of_nvml_take_no_waiting_worker() {
    let server = serve(1, &[], &[]);
    Program::new("nvml").arg("remote").through(&server).expect_success("nvml");
    // NVML's sessions had workers of their own, which start no driver; the program's CUDA found the one that waited.
    let sessions = |what: &str| server.log().lines().filter(|line| line.contains(what)).count();
    assert!(sessions("\"warm\":false") >= 1, "{}", server.log());
    assert_eq!(warm_sessions(&server), 1, "{}", server.log());
}
