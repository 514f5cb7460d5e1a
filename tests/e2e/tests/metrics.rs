//! Metrics of a server, compared with what programs did; and the HTTP that carries them.

use outboard_e2e::metrics::{address, get, get_by, scrape, sum, talk};
use outboard_e2e::{Folder, Program, Running, Server, programs};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn start() -> (Server, String) {
    let server = Server::start_with(&["--driver", "cpu", "--metrics", "0"], &[]);
    let address = address(&server);
    (server, address)
}

#[test]
fn launches_in_rows_are_made_as_one() {
    let (server, address) = start();
    Program::new("rows").through(&server).expect_success("rows");
    let samples = scrape(&address);
    let launches = sum(&samples, "outboard_commands_total", &["class=\"launch\""]);
    let chained = sum(&samples, "outboard_chained_launches_total", &[]);
    // How many depends on how busy the machine is.
    assert!(chained > launches / 20.0, "{chained} of {launches}");
    let server =
        Server::start_with(&["--driver", "cpu", "--metrics", "0"], &[("OUTBOARD_CHAINS", "off")]);
    let address = self::address(&server);
    Program::new("rows").through(&server).expect_success("rows, each by itself");
    assert_eq!(sum(&scrape(&address), "outboard_chained_launches_total", &[]), 0.0);
}

fn running(server: &Server) -> Running {
    let mut program = Program::new("endless").arg("32").start_through(server);
    program.wait_for_line("running");
    program
}

#[test]
fn metrics_count_what_programs_did_and_never_go_backwards() {
    let (server, address) = start();
    let before = scrape(&address);
    assert_eq!(sum(&before, "outboard_session_starts_total", &[]), 0.0);
    // Two programs whose own statistics say how often they launched.
    let mut launches = 0.0;
    for _ in 0..2 {
        let statistics = Program::new("saxpy").statistics(&server);
        let functions = statistics["functions"].as_object().expect("functions").clone();
        let launching = functions.iter().filter(|(name, _)| name.starts_with("cuLaunch"));
        launches += launching
            .map(|(_, function)| function["calls"].as_f64().expect("a count"))
            .sum::<f64>();
    }
    assert!(launches > 0.0);
    let counted = |samples: &BTreeMap<String, f64>| {
        sum(samples, "outboard_commands_total", &["class=\"launch\""])
    };
    // A worker's end may be noticed a moment later than its client's.
    let gone = |samples: &BTreeMap<String, f64>| sum(samples, "outboard_sessions", &[]) == 0.0;
    assert!(outboard_e2e::within(Duration::from_secs(30), || gone(&scrape(&address))));
    let after = scrape(&address);
    assert_eq!(counted(&after), launches, "ended sessions count on");
    assert_eq!(sum(&after, "outboard_session_starts_total", &["welcomed"]), 2.0);
    assert_eq!(sum(&after, "outboard_device_memory_bytes", &[]), 0.0);

    let program = running(&server);
    let during = scrape(&address);
    assert_eq!(sum(&during, "outboard_sessions", &["state=\"serving\""]), 1.0);
    assert!(counted(&during) >= launches + 20.0);
    assert!(sum(&during, "outboard_device_memory_bytes", &["device=\"0\""]) >= f64::from(32 << 20));
    // The first wait may just have begun.
    let waited = |samples: &BTreeMap<String, f64>| {
        sum(samples, "outboard_wait_seconds_count", &[]) >= 1.0
            && sum(samples, "outboard_wait_seconds_sum", &[]) > 0.0
    };
    assert!(outboard_e2e::within(Duration::from_secs(30), || waited(&scrape(&address))));
    assert!(sum(&during, "outboard_bytes_total", &["to_device", "way=\"commands\""]) > 0.0);
    assert!(sum(&during, "outboard_build_info", &["version=", "protocol="]) == 1.0);
    assert!(sum(&during, "process_resident_memory_bytes", &[]) > 0.0);
    drop(program);
    let mut last = during;
    for _ in 0..20 {
        let next = scrape(&address);
        for (name, value) in
            last.iter().filter(|(name, _)| name.contains("_total") || name.contains("_count"))
        {
            assert!(
                next.get(name).is_some_and(|later| later >= value),
                "{name} was {value} and is {:?}",
                next.get(name)
            );
        }
        last = next;
    }
}

#[test]
fn errors_and_refusals_are_counted() {
    let (server, address) = start();
    Program::new("errors").through(&server).expect_success("errors");
    Program::new("fault_null").through(&server).expect_success("fault_null");
    let listed = format!("{}/7", server.address());
    assert!(!Program::new("saxpy").through_list(&listed).status.success(), "there is no device 7");
    let _ = talk(server.address(), b"GET / HTTP/1.1\r\nHost: not the right port\r\n\r\n");
    let samples = scrape(&address);
    assert!(sum(&samples, "outboard_errors_total", &["kind=\"fault\""]) >= 1.0, "{samples:?}");
    assert!(
        sum(&samples, "outboard_refusals_total", &["code=\"bad_hello\""]) >= 1.0,
        "{samples:?}"
    );
}

#[test]
fn only_three_paths_are_told_and_slow_or_large_requests_are_cut_off() {
    let (server, address) = start();
    assert!(
        get(&address, "/healthz").contains("serving") && get(&address, "/readyz").contains("ready")
    );
    assert!(get(&address, "/").starts_with("HTTP/1.1 404"));
    assert!(get(&address, "/metrics/../etc/passwd").starts_with("HTTP/1.1 404"));
    assert!(
        talk(&address, b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            .starts_with("HTTP/1.1 405")
    );
    let large = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    assert!(
        !talk(&address, large.as_bytes()).contains(" 200 "),
        "a head of a mebibyte is too long"
    );
    assert!(!talk(&address, b"\x16\x03\x01\x02\0nonsense\r\n\r\n").contains(" 200 "));
    // One who says nothing is cut off, and holds up nobody meanwhile.
    let begun = Instant::now();
    let mut silent = TcpStream::connect(&address).expect("metrics are there");
    silent.write_all(b"GET /metrics HT").expect("there is room");
    assert!(get(&address, "/healthz").contains("serving"));
    silent.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    assert!(begun.elapsed() < Duration::from_secs(60), "it was cut off");
    Program::new("vector_add").through(&server).expect_success("a client of the server itself");
}

/// The first reader may come before the process that asks the devices is there.
fn with_devices(address: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let told = |samples: &BTreeMap<String, f64>| sum(samples, "outboard_device_info", &[]) > 0.0;
    assert!(outboard_e2e::within(Duration::from_secs(60), || {
        samples = scrape(address);
        told(&samples)
    }));
    samples
}

#[test]
fn the_software_device_tells_what_it_knows() {
    let (server, address) = start();
    let before = with_devices(&address);
    let value = |samples: &BTreeMap<String, f64>, name: &str| {
        samples.get(&format!("{name}{{device=\"0\"}}")).copied()
    };
    assert_eq!(value(&before, "outboard_device_memory_used_bytes"), Some(0.0));
    assert!(value(&before, "outboard_device_memory_total_bytes") > Some(0.0));
    assert!(
        value(&before, "outboard_device_utilization_ratio")
            .is_some_and(|ratio| (0.0..=1.0).contains(&ratio))
    );
    for unknown in ["outboard_device_temperature_celsius", "outboard_device_power_watts"] {
        assert_eq!(value(&before, unknown), None);
    }
    let program = running(&server);
    let used = |samples: &BTreeMap<String, f64>| {
        value(samples, "outboard_device_memory_used_bytes").expect("known")
    };
    let enough = || used(&scrape(&address)) >= f64::from(32 << 20);
    assert!(outboard_e2e::within(Duration::from_secs(30), enough));
    drop(program);
    assert!(outboard_e2e::within(Duration::from_secs(30), || used(&scrape(&address)) == 0.0));
}

#[test]
fn a_library_that_hangs_holds_up_no_reader() {
    let library = programs().join("fake_nvml").display().to_string();
    let folder = Folder::create();
    let hangs = folder.path("hangs");
    let arguments = ["--driver", "cpu", "--metrics", "0", "--nvml", &library];
    let server = Server::start_with(&arguments, &[("FAKE_NVML_HANGS", &hangs)]);
    let address = address(&server);
    let samples = with_devices(&address);
    let of = |samples: &BTreeMap<String, f64>, name: &str| sum(samples, name, &["device=\"0\""]);
    assert_eq!(of(&samples, "outboard_device_memory_used_bytes"), 99.0);
    assert_eq!(of(&samples, "outboard_device_utilization_ratio"), 0.43);
    assert_eq!(of(&samples, "outboard_device_temperature_celsius"), 42.0);
    std::fs::write(&hangs, "").expect("it can be written");
    let age =
        |samples: &BTreeMap<String, f64>| sum(samples, "outboard_device_reading_age_seconds", &[]);
    assert!(outboard_e2e::within(Duration::from_secs(30), || age(&scrape(&address)) > 2.0));
    // One reader has waited; nobody does so again.
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(
            of(&scrape(&address), "outboard_device_temperature_celsius"),
            42.0,
            "as it was last"
        );
        assert!(get(&address, "/healthz").contains("serving"));
    }
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    Program::new("vector_add").through(&server).expect_success("a client meanwhile");
    std::fs::remove_file(&hangs).expect("it was there");
    assert!(
        outboard_e2e::within(Duration::from_secs(30), || age(&scrape(&address)) < 1.0),
        "it answers again"
    );
}

#[test]
fn the_most_sessions_are_one_number_everywhere() {
    let folder = Folder::create();
    let admin = folder.path("admin.sock");
    let arguments = ["--driver", "cpu", "--metrics", "0", "--max-sessions", "2", "--admin", &admin];
    let server = Server::start_with(&arguments, &[]);
    let address = address(&server);
    server.expect_logged("\"max_sessions\":2");
    assert_eq!(sum(&scrape(&address), "outboard_sessions_limit", &[]), 2.0);
    let listed =
        outboard_e2e::outboard(&["sessions", "--json", "--over", "0.01", "--admin", &admin]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
    assert_eq!(listed["most_sessions"], 2);
    let first = running(&server);
    assert!(get(&address, "/readyz").contains("ready"));
    let second = running(&server);
    assert!(get(&address, "/readyz").contains("limit of sessions"), "{}", get(&address, "/readyz"));
    // A client that only asks takes no session.
    assert!(outboard_e2e::outboard(&["devices", "--server", server.address()]).status.success());
    drop((first, second));
}

#[test]
fn metrics_are_not_for_other_machines_unless_said() {
    let output = std::process::Command::new(outboard_e2e::dist().join("bin/outboard"))
        .args([
            "serve",
            "--driver",
            "cpu",
            "--listen",
            "127.0.0.1:0",
            "--socket",
            "none",
            "--metrics",
            "0.0.0.0:0",
        ])
        .output()
        .expect("outboard starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("OB0905") && said.contains("--metrics-public"),
        "{said}"
    );
}

/// A browser asks by the name that its page has, wherever that name points.
#[test]
fn a_page_of_another_name_reads_no_metrics() {
    let flags = ["--driver", "cpu", "--metrics", "0", "--metrics-host", "a.example,b.example"];
    let server = Server::start_with(&flags, &[]);
    let address = address(&server);
    let status = |answer: &str| answer.split(' ').nth(1).unwrap_or_default().to_owned();
    for path in ["/metrics", "/healthz", "/readyz", "/"] {
        let refused = get_by(&address, path, "evil.example");
        assert_eq!(status(&refused), "421", "{refused}");
        assert!(refused.contains("--metrics-host") && !refused.contains("outboard_"), "{refused}");
    }
    server.expect_logged("evil.example");
    for own in [&*address, "localhost", "a.example", "B.example:9471", "[::1]:9471"] {
        assert_eq!(status(&get_by(&address, "/metrics", own)), "200", "{own}");
    }
    assert_eq!(status(&talk(&address, b"GET /metrics HTTP/1.0\r\n\r\n")), "200");
}
