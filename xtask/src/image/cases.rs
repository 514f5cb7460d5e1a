//! The cases, in the order in which they are run.

use super::bare;
use super::podman::{ADDRESS, CONFINED, output, podman, said};
use super::pool;
use super::pool_page;
use super::server::{self, Server};
use super::services;
use super::world::{SOON, USER, World, succeeded};
use crate::apart::Case;
use crate::apart::within;
use crate::{programs, util};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::Command;
use std::time::Instant;

const fn case(name: &'static str, run: fn(&mut World) -> Result<()>) -> Case<World> {
    Case { name, run }
}

pub(super) const ALL: &[Case<World>] = &[
    case(FILES, files),
    case("every image has a user without rights", users),
    case("the driver for Kubernetes starts", driver),
    case("a program outside, a server in a container", outside),
    case("workers in a container are confined", confined),
    case("a program in the client's container", client),
    case("a program in any container, by CDI", any),
    case(BARE, bare::without_flags),
    case("a server ends with its container", ends),
    case("a broker and a server in containers", pool::leased),
    case("a broker's container is killed", pool::killed),
    case("both services under systemd", services::services),
    case("a pool as docs/broker.md and docs/pool.md say", pool_page::followed),
];

/// The case that lays out the images' files.
pub(super) const FILES: &str = "the files of each image are laid out";

/// The case whose result others want to know.
pub(super) const BARE: &str = "programs in containers without flags";

/// For runtimes that know no images, such as the one of `cargo xtask kubernetes`.
fn files(world: &mut World) -> Result<()> {
    let folder = super::files_folder();
    let _ = fs::remove_dir_all(&folder);
    for image in &world.images {
        let name = image.split(':').next().unwrap_or(image);
        let at = folder.join(name);
        fs::create_dir_all(&at)?;
        let said = podman(&["image", "inspect", "--format={{json .Config}}", image])?;
        fs::write(folder.join(format!("{name}.json")), said)?;
        let archive = folder.join("files.tar");
        podman(&["create", "--replace", "--name=files", image])?;
        podman(&["export", &format!("--output={}", archive.display()), "files"])?;
        podman(&["rm", "files"])?;
        util::run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&at))?;
        fs::remove_file(archive)?;
    }
    Ok(())
}

fn users(world: &mut World) -> Result<()> {
    for image in &world.images {
        let user = podman(&["image", "inspect", "--format={{.Config.User}}", image])?;
        ensure!(user.trim() == format!("{USER}:{USER}"), "{image} runs as `{}`", user.trim());
    }
    Ok(())
}

fn driver(world: &mut World) -> Result<()> {
    for part in ["controller", "node"] {
        let args = ["run", "--rm", world.image("dra")?, part, "--help"];
        let said = said(&output(&[&args[..2], &CONFINED, &args[2..]].concat())?);
        ensure!(said.contains("-kubeconfig"), "{said}");
    }
    Ok(())
}

/// Programs of this machine use it, by the flags of `outboard run`.
fn works(world: &World, flags: &[String]) -> Result<()> {
    for (program, text) in [("./attributes", "right"), ("./devices", "works")] {
        let mut args = vec!["run"];
        args.extend(flags.iter().map(String::as_str));
        args.extend(["--", program]);
        let said = succeeded(&world.outboard(&args)?)?;
        ensure!(said.contains(text), "{program} says {said}");
    }
    Ok(())
}

fn outside(world: &mut World) -> Result<()> {
    let server = Server::start(world, &[])?;
    works(world, &server.flags())?;
    let sessions = server.container.exec(&["outboard", "top", "--once"])?;
    ensure!(sessions.contains("Outboard CPU"), "{sessions}");
    drop(server);
    let image = world.image("server")?;
    let doctor = podman(&["run", "--rm", server::STATE, image, "doctor", "serve"])?;
    ensure!(doctor.contains("It works") && doctor.contains("Landlock version"), "{doctor}");
    Ok(())
}

fn confined(world: &mut World) -> Result<()> {
    let server = Server::start(world, &[])?;
    let flags = server.flags();
    let mut args = vec!["run"];
    args.extend(flags.iter().map(String::as_str));
    args.extend(["--", "./endless"]);
    let mut program = world.command(&args).spawn().context("cannot start a program")?;
    let is_busy = within(SOON, "a worker has a session", || {
        Ok(server.container.exec(&["outboard", "sessions"])?.contains("me"))
    });
    let processes = server.processes();
    program.kill()?;
    program.wait()?;
    is_busy?;
    let processes = processes?;
    // The engine's filter of calls, and behind it a worker's own one. Another worker, which is to
    // wait for a client, may have yet to start its driver, and has its filter then.
    let confined = processes.iter().filter(|process| process.says("Seccomp_filters") == "2");
    let confined = confined.filter(|process| process.is_worker).count();
    ensure!(confined > 0, "no worker has a filter of its own: {processes:#?}");
    for process in processes {
        let is = |key: &str| process.says(key);
        for (key, wanted) in [
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
            ("CapEff", "0000000000000000"),
            ("CapBnd", "0000000000000000"),
        ] {
            ensure!(is(key) == wanted, "{key} is {} and not {wanted}", is(key));
        }
        ensure!(is("Uid").starts_with("10001"), "it runs as {}", is("Uid"));
    }
    Ok(())
}

/// Runs a CUDA program of this machine in a container.
fn run_in(image: &str, flags: &[&str]) -> Result<String> {
    let programs = format!("--volume={}:/programs:ro", programs::dir().display());
    let run = ["run", "--rm", &programs];
    let output = output(&[&run, &CONFINED[..], flags, &[image, "/programs/attributes"]].concat())?;
    succeeded(&output)
}

fn client(world: &mut World) -> Result<()> {
    let server = Server::start(world, &[])?;
    let token = format!("--volume={}:/run/secrets/outboard:ro", server.access.token);
    let fingerprint = format!("--env=OUTBOARD_TLS_FINGERPRINT={}", server.access.fingerprint);
    let flags = [
        &format!("--env=OUTBOARD_SERVER={ADDRESS}"),
        &fingerprint,
        "--env=OUTBOARD_TOKEN_FILE=/run/secrets/outboard",
        &token,
    ];
    let image = world.image("client")?;
    let said = run_in(image, &flags)?;
    ensure!(said.contains("right"), "{said}");
    let doctor = podman(&[&["run", "--rm"], &CONFINED[..], &flags, &[image]].concat())?;
    ensure!(doctor.contains("It works"), "{doctor}");
    Ok(())
}

fn any(world: &mut World) -> Result<()> {
    let server = Server::start(world, &[])?;
    let mut args = vec!["cdi", "generate", "--output=/etc/cdi/outboard.json"];
    let flags = server.flags();
    args.extend(flags.iter().map(String::as_str));
    fs::create_dir_all("/etc/cdi")?;
    succeeded(&world.outboard(&args)?)?;
    // Nothing of ours is in it.
    let image = super::base::argument("BASE")?;
    let user = &*format!("--user={USER}:{USER}");
    let said = run_in(&image, &[user, "--device=outboard.dev/gpu=all"])?;
    ensure!(said.contains("right"), "{said}");
    ensure!(run_in(&image, &[user]).is_err(), "without the device there is one, too");
    Ok(())
}

fn ends(world: &mut World) -> Result<()> {
    let server = Server::start(world, &["--env=OUTBOARD_SERVE_DRAIN=1"])?;
    let flags = server.flags();
    let mut args = vec!["run"];
    args.extend(flags.iter().map(String::as_str));
    args.extend(["--", "./endless"]);
    let mut program = world.command(&args).spawn().context("cannot start a program")?;
    within(SOON, "a worker has a session", || {
        Ok(server.container.exec(&["outboard", "sessions"])?.contains("me"))
    })?;
    let begin = Instant::now();
    podman(&["stop", "--time=20", "server"])?;
    let took = begin.elapsed();
    ensure!(took.as_secs() < 15, "the server took {took:?} to end");
    let code = podman(&["inspect", "--format={{.State.ExitCode}}", "server"])?;
    ensure!(code.trim() == "0", "the server ended with {}", code.trim());
    ensure!(!program.wait()?.success(), "the program has not lost its device");
    Ok(())
}
