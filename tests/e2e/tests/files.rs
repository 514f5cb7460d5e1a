//! Files whose bytes move to and from device memory, by Outboard's `libcufile.so.0`.

use outboard_e2e::{Driver, Folder, Program, Server};

fn server() -> Server {
    Server::start_with(&["--driver", Driver::chosen().name()], &[])
}

fn program(how: &str, folder: &Folder) -> Program {
    Program::new("cufile").arg(how).arg(&folder.path("."))
}

#[test]
fn files_are_read_and_written() {
    let (server, folder) = (server(), Folder::create());
    let all = program("all", &folder);
    all.through(&server).expect_success("over TCP");
    all.sharing_memory().through(&server).expect_success("with shared memory");
}

#[test]
fn settings_are_kept_and_told() {
    let (server, folder) = (server(), Folder::create());
    program("settings", &folder).through(&server).expect_success("settings");
}

#[test]
fn freed_memory_is_an_error() {
    let (server, folder) = (server(), Folder::create());
    let freed = program("freed", &folder);
    freed.through(&server).expect_success("over TCP");
    freed.sharing_memory().through(&server).expect_success("with shared memory");
}

/// The driver library is that of the software device, which is Outboard's as well.
#[test]
fn a_device_of_the_process_has_files_too() {
    let folder = Folder::create();
    let library = outboard_e2e::dist().join("lib/outboard/client/libcufile.so.0");
    let library = library.to_str().expect("a plain path");
    program("all", &folder).env("LD_PRELOAD", library).directly().expect_success("directly");
}
