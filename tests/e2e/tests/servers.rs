//! Programs that use the devices of several servers as those of one machine.

use std::time::Duration;

use outboard_e2e::{Driver, Folder, Program, Server, list, outboard, reaching_loopback, within};
use outboard_test_support::skip;
use serde_json::Value;

/// A server with this many software devices. On a GPU each server offers what there is.
fn server(devices: &str) -> Server {
    let env = [("OUTBOARD_CPU_DEVICES", devices), ("OUTBOARD_CPU_MEMORY", "256M")];
    Server::start_with(&reaching_loopback(&["--driver", Driver::chosen().name()]), &env)
}

fn works_over(transport: &str, count: usize, devices: &str) {
    let servers: Vec<Server> = (0..count).map(|_| server(devices)).collect();
    let program =
        Program::new("servers").arg(&count.to_string()).env("OUTBOARD_TRANSPORT", transport);
    let outcome = program.through_list(&list(&servers.iter().collect::<Vec<_>>()));
    outcome.expect_success("several servers");
    let lines: Vec<&str> =
        outcome.stdout.lines().filter(|line| !line.starts_with("cuda")).collect();
    let refused = (count > 1).then_some("what crosses servers is refused");
    let wanted =
        ["addresses are apart", "one after the other", "all at once"].into_iter().chain(refused);
    assert_eq!(lines[1..], wanted.chain(["servers: done"]).collect::<Vec<_>>());
}

#[test]
fn one_server_with_two_devices_works() {
    works_over("tcp", 1, "2");
}

#[test]
fn two_servers_work_over_tcp() {
    works_over("tcp", 2, "2");
}

#[test]
fn two_servers_work_in_shared_memory() {
    works_over("shm", 2, "1");
}

/// The devices of two servers, or of one, work together.
fn cross(lists: &str, transport: &str) {
    let program = Program::new("crossing").env("OUTBOARD_TRANSPORT", transport);
    let outcome = program.through_list(lists);
    outcome.expect_success("what crosses devices");
    assert!(outcome.stdout.ends_with("crossing: done\n"), "{}", outcome.stdout);
}

#[test]
fn devices_of_two_servers_work_together() {
    let (first, second) = (server("1"), server("1"));
    for transport in ["tcp", "shm"] {
        cross(&list(&[&first, &second]), transport);
    }
}

/// A stream that waits for a server that is lost goes on, and the next wait returns the error.
#[test]
fn a_stream_that_waits_for_a_server_that_is_lost_goes_on() {
    let (first, second) = (server("1"), server("1"));
    let mut running =
        Program::new("crossing").arg("lost").start_through_list(&list(&[&first, &second]));
    running.wait_for_line("waiting");
    let worker = rustix::process::Pid::from_raw(second.only_worker() as i32).expect("a process");
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).expect("it runs");
    let outcome = running.finish();
    outcome.expect_success("the first server's device");
    assert!(outcome.stdout.ends_with("the other server goes on\n"), "{}", outcome.stdout);
}

#[test]
fn devices_of_one_server_work_together_alike() {
    if Driver::chosen() != Driver::Cpu {
        skip!("the GPUs of this machine may be one");
    }
    cross(server("2").address(), "tcp");
}

#[test]
fn four_servers_work() {
    works_over("tcp", 4, "1");
}

/// Two devices of each of two servers, by ranges in a file, which `outboard run` writes out.
#[test]
fn a_file_of_servers_works() {
    let (first, second) = (server("2"), server("2"));
    let folder = Folder::create();
    let devices = if Driver::chosen() == Driver::Cpu { "0-1" } else { "[0]" };
    let text = format!("{}/{devices}\n# and\n{}/{devices}\n", first.address(), second.address());
    let file = format!("@{}", folder.write("servers", &text));
    Program::new("servers").arg("2").through_list(&file).expect_success("a file of servers");
    let said = outboard(&["env", "--server", &file]);
    let shown = String::from_utf8_lossy(&said.stdout);
    let wanted = format!("{}/0,", first.address());
    assert!(said.status.success() && shown.contains(&wanted) && !shown.contains('@'), "{said:?}");
}

#[test]
fn a_server_that_is_lost_takes_its_devices_along_and_no_others() {
    let (first, second) = (server("1"), server("1"));
    let program = Program::new("servers").arg("2").arg("lost");
    let mut running = program.start_through_list(&list(&[&first, &second]));
    running.wait_for_line("waiting");
    let worker = rustix::process::Pid::from_raw(second.only_worker() as i32).expect("a process");
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).expect("it runs");
    let outcome = running.finish();
    outcome.expect_success("the first server's device");
    assert!(outcome.stdout.ends_with("the other server goes on\n"), "{}", outcome.stdout);
    let said = format!("the server {} is lost", second.address());
    assert!(
        outcome.stderr.contains(&said) && !outcome.stderr.contains(first.address()),
        "{}",
        outcome.stderr
    );
    assert!(
        within(Duration::from_secs(10), || first.workers().is_empty()),
        "its session has ended with the program"
    );
}

#[test]
fn a_server_that_does_not_answer_is_named() {
    let first = server("1");
    let nobody = "127.0.0.1:1";
    let outcome =
        Program::new("servers").arg("2").through_list(&format!("{},{nobody}", first.address()));
    assert!(
        !outcome.status.success() && outcome.stderr.contains(nobody),
        "{}{}",
        outcome.stdout,
        outcome.stderr
    );
    // A program that was started without `outboard run` says it in the log.
    let program =
        Program::new("vector_add").env("OUTBOARD_LOG", "1").env("OUTBOARD_CONFIG", "none");
    let list = format!("{},{nobody}", first.address());
    let outcome = program.env("OUTBOARD_SERVER", &list).with_library();
    assert!(
        !outcome.status.success() && outcome.stderr.contains(nobody),
        "{}{}",
        outcome.stdout,
        outcome.stderr
    );
}

#[test]
fn devices_of_all_servers_are_listed() {
    let (first, second) = (server("2"), server("1"));
    let said = outboard(&["devices", "--json", "--server", &list(&[&first, &second])]);
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let listings: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    let each: Vec<(&str, usize)> = listings
        .as_array()
        .expect("a list of servers")
        .iter()
        .map(|one| {
            (one["server"].as_str().unwrap_or(""), one["devices"].as_array().map_or(0, Vec::len))
        })
        .collect();
    if Driver::chosen() == Driver::Cpu {
        assert_eq!(each, [(first.address(), 2), (second.address(), 1)]);
    }
    // One that does not answer hides no other.
    let said = outboard(&["devices", "--server", &format!("127.0.0.1:1,{}", second.address())]);
    assert!(
        !said.status.success() && String::from_utf8_lossy(&said.stderr).contains("127.0.0.1:1")
    );
    assert!(String::from_utf8_lossy(&said.stdout).contains(second.address()), "{said:?}");
    let said = outboard(&["sessions", "--server", &list(&[&first, &second])]);
    assert!(
        String::from_utf8_lossy(&said.stderr).contains("name one of them"),
        "a command for one server says so"
    );
}

/// What the doctor finds of a list: the check, how it went, the server that it is about.
fn doctor(list: &str) -> Vec<[String; 3]> {
    let said = outboard(&["doctor", "--json", "--server", list]);
    let report: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"));
    let part = |finding: &Value, name: &str| finding[name].as_str().unwrap_or_default().to_owned();
    let findings = report["findings"].as_array().expect("a list").iter();
    findings.map(|finding| ["check", "level", "server"].map(|name| part(finding, name))).collect()
}

#[test]
fn the_doctor_looks_at_each_server() {
    let (first, second) = (server("1"), server("1"));
    let (first, nobody) = (first.address(), "127.0.0.1:1");
    let found = doctor(&format!("{first},{},{nobody}", second.address()));
    let of = |check: &str, level: &str| -> Vec<&str> {
        let those = found.iter().filter(|finding| finding[0] == check && finding[1] == level);
        those.map(|finding| &*finding[2]).collect()
    };
    assert_eq!(
        (of("server", "ok"), of("server", "fail")),
        (vec![first, second.address()], vec![nobody]),
        "{found:?}"
    );
    for check in ["session", "window"] {
        assert_eq!(of(check, "ok"), [first, second.address()], "{check}: {found:?}");
    }
    assert_eq!(of("libraries", "ok"), [""], "what is of no server is looked at once");
}

#[test]
fn the_profile_tells_of_each_server() {
    let (first, second) = (server("1"), server("1"));
    let said = Program::new("servers").arg("2").statistics_of_list(&list(&[&first, &second]));
    let servers: Vec<&str> = said["servers"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["server"].as_str())
        .collect();
    assert_eq!(servers, [first.address(), second.address()]);
    assert!(
        said["servers"]
            .as_array()
            .expect("a list")
            .iter()
            .all(|one| one["posted"].as_u64() > Some(100)),
        "{said}"
    );
}

/// NVML and CUDA speak of the same devices, under the same addresses and names.
#[test]
fn nvml_has_the_devices_of_all_servers() {
    let (first, second) = (server("2"), server("1"));
    let outcome =
        Program::new("nvml").arg("remote").arg("beside").through_list(&list(&[&first, &second]));
    outcome.expect_success("NVML beside CUDA");
}

/// Without addresses of its own, a server is good for a program alone.
#[test]
fn a_server_without_a_window_is_refused_as_one_of_several() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let first = server("1");
    let large = [("OUTBOARD_CPU_DEVICES", "16"), ("OUTBOARD_CPU_MEMORY", "64G")];
    let second = Server::start_with(&["--driver", "cpu"], &large);
    let program = Program::new("vector_add").env("OUTBOARD_LOG", "1");
    let outcome = program.through_list(&list(&[&first, &second]));
    assert!(!outcome.status.success(), "{}", outcome.stdout);
    let said = &outcome.stderr;
    assert!(said.contains("OB0213") && said.contains(second.address()), "{said}");
    let found = doctor(&list(&[&first, &second]));
    assert!(found.contains(&["window", "fail", second.address()].map(str::to_owned)), "{found:?}");
    program.through(&second).expect_success("alone");
}

/// How a program reached each server of a list, as its profile says.
fn transports(said: &Value) -> Vec<&str> {
    said["servers"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["transport"].as_str())
        .collect()
}

#[test]
fn one_server_by_tcp_and_one_in_shared_memory_work() {
    let folder = Folder::create();
    let socket = folder.path("socket");
    let first = Server::start_with(&["--driver", Driver::chosen().name(), "--socket", "none"], &[]);
    let _second =
        Server::start_with(&["--driver", Driver::chosen().name(), "--socket", &socket], &[]);
    let program = Program::new("servers").arg("2").env("OUTBOARD_TRANSPORT", "");
    for (list, wanted) in [
        (format!("{},unix:{socket}", first.address()), ["tcp", "shm"]),
        (format!("unix:{socket},{}", first.address()), ["shm", "tcp"]),
    ] {
        assert_eq!(transports(&program.statistics_of_list(&list)), wanted);
    }
}

/// All servers of a list are shown the same token, and one that does not know it refuses it even if
/// it asks for none.
#[test]
fn servers_that_share_a_certificate_and_tokens_work_over_tls_and_by_a_socket() {
    let folder = Folder::create();
    let (state, socket) = (folder.path("state"), folder.path("socket"));
    let made = outboard(&["token", "create", "--json", "--owner", "alice", "--state", &state]);
    let made: Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let part = |name: &str| made[name].as_str().expect("a text").to_owned();
    let strict = |more: &[&str]| {
        let args = [
            "--driver",
            Driver::chosen().name(),
            "--tls",
            "on",
            "--require-authentication",
            "--state",
            &state,
        ];
        Server::start_with(&[&args, more].concat(), &[])
    };
    let (first, second) = (strict(&["--socket", "none"]), strict(&["--socket", &socket]));
    let known = |program: &str| {
        let program = Program::new(program)
            .env("OUTBOARD_TRANSPORT", "")
            .env("OUTBOARD_TOKEN", &part("token"));
        program.env("OUTBOARD_TLS_FINGERPRINT", &part("fingerprint"))
    };
    let local = format!("unix:{socket}");
    let said =
        known("servers").arg("2").statistics_of_list(&format!("{},{local}", first.address()));
    assert_eq!(transports(&said), ["tcp+tls", "shm"]);
    let both = known("servers").arg("2").env("OUTBOARD_TRANSPORT", "tcp");
    assert_eq!(
        transports(&both.statistics_of_list(&list(&[&first, &second]))),
        ["tcp+tls", "tcp+tls"]
    );

    let (other, plain) = (folder.path("other"), folder.path("plain-socket"));
    let args = [
        "--driver",
        Driver::chosen().name(),
        "--tls",
        "off",
        "--state",
        &other,
        "--socket",
        &plain,
    ];
    let open = Server::start_with(&args, &[]);
    let plain = format!("unix:{plain}");
    for (address, code) in [(&*plain, "OB0402"), (open.address(), "OB0405")] {
        let outcome = known("vector_add")
            .env("OUTBOARD_TRANSPORT", "")
            .through_list(&format!("{local},{address}"));
        let said = outcome.stderr;
        assert!(
            !outcome.status.success() && said.contains(code) && said.contains(address),
            "{said}"
        );
    }
}

/// Which devices the variable means is known once those of all servers are, so that a server has a
/// session even if none of its devices is used.
#[test]
fn a_program_that_sees_one_device_works_with_its_server_alone() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let (first, second) = (server("1"), server("1"));
    let program = Program::new("vector_add").env("CUDA_VISIBLE_DEVICES", "1");
    let said = program.statistics_of_list(&list(&[&first, &second]));
    let asked = |server: usize| said["servers"][server]["waited"].as_u64();
    assert!(asked(0) == Some(0) && asked(1) > Some(0), "{said}");
    let process = format!("\"client\":\"vector_add ({})\"", said["process"]);
    for server in [&first, &second] {
        assert_eq!(
            server.log().lines().filter(|line| line.contains(&process)).count(),
            1,
            "{}",
            server.log()
        );
    }
}

/// The variable counts among the devices of all servers, whichever way it names them.
#[test]
fn devices_of_all_servers_are_chosen_among() {
    if Driver::chosen() != Driver::Cpu {
        skip!("it is about the software device");
    }
    let (first, second) = (server("2"), server("1"));
    let list = list(&[&first, &second]);
    let lines = |visible: Option<&str>| -> Vec<String> {
        let program = Program::new("devices");
        let program =
            visible.iter().fold(program, |program, one| program.env("CUDA_VISIBLE_DEVICES", one));
        let outcome = program.through_list(&list);
        outcome.expect_success("a list of devices");
        let uuid = |line: &str| {
            line.split([' ', ',']).find(|word| word.starts_with("GPU-"))?.to_owned().into()
        };
        outcome.stdout.lines().filter_map(uuid).collect()
    };
    let all = lines(None);
    assert_eq!(all.len(), 3);
    let uuids = format!("{},{}", all[2], all[1]);
    for (visible, wanted) in
        [("2,0", &[2, 0][..]), ("1", &[1]), (uuids.as_str(), &[2, 1]), ("2,7,0", &[2]), ("-1", &[])]
    {
        let wanted: Vec<&String> = wanted.iter().map(|index| &all[*index]).collect();
        assert_eq!(lines(Some(visible)).iter().collect::<Vec<_>>(), wanted, "{visible}");
    }
}

/// One server under two names is no second one; two of its devices may come by either.
#[test]
fn a_device_that_is_there_under_two_names_is_refused() {
    let server = server("2");
    let port = server.address().rsplit_once(':').expect("a port").1;
    let program = Program::new("vector_add").env("OUTBOARD_LOG", "1");
    let outcome = program.through_list(&format!("{},localhost:{port}/0", server.address()));
    assert!(
        !outcome.status.success() && outcome.stderr.contains("are one server"),
        "{}{}",
        outcome.stdout,
        outcome.stderr
    );
    if Driver::chosen() == Driver::Cpu {
        program
            .through_list(&format!("{}/1,localhost:{port}/0", server.address()))
            .expect_success("a device by each name");
    }
}
