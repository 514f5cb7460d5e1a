//! Which devices a program sees: those of the server in the order asked for, then
//! `CUDA_VISIBLE_DEVICES`.

use outboard_e2e::{Program, Server, command, dist};

fn three_devices() -> Server {
    Server::start_with(&["--driver", "cpu"], &[("OUTBOARD_CPU_DEVICES", "3")])
}

/// The UUIDs of the server's devices, as `GPU-…`.
fn uuids(server: &Server) -> Vec<String> {
    let mut command = command();
    let output = command
        .args(["devices", "--json", "--server", server.address()])
        .output()
        .expect("outboard starts");
    let listing: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let devices = listing["devices"].as_array().expect("a list of devices").clone();
    devices.iter().map(|device| device["uuid"].as_str().expect("a UUID").to_owned()).collect()
}

/// The UUIDs that the program `devices` lists.
fn seen(output: &str) -> Vec<String> {
    output.split([' ', ',']).filter(|word| word.starts_with("GPU-")).map(str::to_owned).collect()
}

#[test]
fn all_forms_select_as_natively() {
    let server = three_devices();
    let uuids = uuids(&server);
    assert_eq!(uuids.len(), 3);
    let prefix = &uuids[1][..12];
    let none: &[usize] = &[];
    let uuid_and_number = format!("{},0", uuids[2]);
    let two_uuids = format!("{},{}", uuids[2], uuids[0]);
    let forms: &[(&str, &[usize])] = &[
        ("0,1,2", &[0, 1, 2]),
        ("2,0", &[2, 0]),
        ("1", &[1]),
        ("", none),
        ("-1", none),
        ("NoDevFiles", none),
        // The first that is not there ends the list.
        ("1,7,0", &[1]),
        ("0,-1,1", &[0]),
        (prefix, &[1]),
        (&two_uuids, &[2, 0]),
        // Numbers are read as C reads them, and are not mixed with UUIDs.
        ("0x1,-0,+2", &[1, 0, 2]),
        ("1;2,0", &[1, 0]),
        (&uuid_and_number, &[2]),
    ];
    for (value, wanted) in forms {
        let program = Program::new("devices").env("CUDA_VISIBLE_DEVICES", value);
        let remote = program.through(&server);
        remote.expect_success(value);
        let expected: Vec<&String> = wanted.iter().map(|index| &uuids[*index]).collect();
        assert_eq!(
            seen(&remote.stdout).iter().collect::<Vec<_>>(),
            expected,
            "CUDA_VISIBLE_DEVICES={value}: {}",
            remote.stdout
        );
        let direct = program.env("OUTBOARD_CPU_DEVICES", "3").directly();
        assert_eq!(direct.stdout, remote.stdout, "CUDA_VISIBLE_DEVICES={value}");
    }
}

#[test]
fn the_list_of_the_server_picks_and_orders() {
    let server = three_devices();
    let uuids = uuids(&server);
    let at = |index: usize| format!("{}/{index}", server.address());
    let program = Program::new("devices");
    let outcome = program.through_list(&format!("{},{}", at(2), at(1)));
    outcome.expect_success("two devices");
    assert_eq!(seen(&outcome.stdout), [uuids[2].clone(), uuids[1].clone()]);
    // CUDA_VISIBLE_DEVICES counts among those.
    let outcome =
        program.env("CUDA_VISIBLE_DEVICES", "1").through_list(&format!("{},{}", at(2), at(0)));
    outcome.expect_success("the second of two devices");
    assert_eq!(seen(&outcome.stdout), [uuids[0].clone()]);
}

/// Programs start the driver more than once.
const TWICE: &str =
    "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); print(cuda.cuInit(0), cuda.cuInit(0))";

#[test]
fn the_log_says_once_why_there_is_no_device() {
    let server = three_devices();
    let logged = |list: &str, visible: &str| {
        let mut python = std::process::Command::new("python3");
        python.args(["-c", TWICE]).env("LD_LIBRARY_PATH", dist().join("lib/outboard/client"));
        python
            .env("OUTBOARD_SERVER", list)
            .env("OUTBOARD_LOG", "1")
            .env("CUDA_VISIBLE_DEVICES", visible);
        let output = python.output().expect("python3 starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "100 100\n", "CUDA_ERROR_NO_DEVICE");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    };
    let hidden = logged(server.address(), "7");
    let part = "CUDA_VISIBLE_DEVICES is `7`, which hides all 3 devices";
    assert!(hidden.contains(part) && hidden.contains("OB0205"), "{hidden}");
    let missing = logged(&format!("{}/5", server.address()), "0");
    assert!(missing.contains("no device 5") && missing.contains("OB0205"), "{missing}");
}
