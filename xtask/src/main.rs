//! The project's own commands: `cargo xtask <command>`.

mod apart;
mod book;
#[cfg(test)]
mod circles;
mod clients;
mod codegen;
mod compared;
mod compatibility;
mod counts;
mod cross;
mod debian;
mod debian_programs;
mod demo;
#[cfg(test)]
mod errors;
mod etcd;
mod facts;
mod first;
mod fuzz;
mod image;
mod kubernetes;
mod latency;
#[cfg(test)]
mod layers;
mod lints;
mod machines;
mod miri;
mod mixed;
mod mpi;
mod nfs;
#[cfg(test)]
mod packaging;
mod paused;
mod planted;
mod programs;
mod python;
mod rdma;
#[cfg(test)]
mod recipe;
mod release;
mod releases;
mod server;
mod slurm;
mod soak;
mod ssh;
mod stage;
#[cfg(test)]
mod statics;
mod test;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod tidy;
mod toolchain;
mod util;
mod vm;
mod web;
mod wheel;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate code from the descriptions in api/, or check that what is checked in is up to date.
    Codegen(codegen::Args),
    /// Extract facts from CUDA's headers into api/facts/.
    Facts(facts::Args),
    /// Install the CUDA compiler, headers and runtimes into .venv.
    Toolchain(toolchain::Args),
    /// Compile the test programs into target/programs/.
    Programs(programs::Args),
    /// Build everything and lay it out in target/dist/.
    Stage(stage::Args),
    /// Make the documentation a book.
    Book(book::Args),
    /// Make all that is published of a version: archives, packages, wheels and others.
    Release(release::Args),
    /// What runs for its checks in namespaces of its own.
    #[command(hide = true)]
    ReleaseCheckInside(release::check::inside::Args),
    /// Make a Python wheel with the command, the client and the software device.
    Wheel(wheel::Args),
    /// Run the fuzz targets for a while.
    Fuzz(fuzz::Args),
    /// Run tests in Miri, which finds undefined behaviour.
    Miri(miri::Args),
    /// Set up all that is needed and run several CUDA programs through a server.
    Demo(demo::Args),
    /// Run the compatibility matrix on this machine's GPU, natively and through a server, and write
    /// its page.
    Compatibility(compatibility::Args),
    /// Run programs of Debian's that use CUDA, natively and through a server, and compare what they
    /// write.
    DebianPrograms(debian_programs::Args),
    /// Count the instructions of the hot paths, and compare them with those that are checked in.
    Counts(counts::Args),
    /// Run the test programs through each kind of client, and write docs/clients.md's table.
    Clients(clients::Args),
    /// Build for other kinds of machines: other processors and older systems.
    Cross(cross::Args),
    /// Run test programs with an earlier release as the client or the server, and this source as
    /// the other.
    Mixed(mixed::Args),
    /// Lay out Open MPI and MPICH, and compile the MPI programs, for the tests of MPI.
    Mpi,
    /// Lay out OpenSSH's server for the tests of servers that ssh leads to.
    Ssh,
    /// Lay out an etcd for the tests of several brokers.
    Etcd,
    /// Build the images for containers with Debian's podman, and run what is in them.
    Image(image::Args),
    /// What runs for it in namespaces of its own.
    #[command(hide = true)]
    ImageInside(image::inside::Args),
    /// Test the driver for Kubernetes: by the scheduler's allocator, by the kubelet's protocol, and
    /// in a cluster of real programs, which it builds (some minutes, once).
    Kubernetes(kubernetes::Args),
    /// Show what a step of typical loops takes on networks with latency.
    Latency(latency::Args),
    /// Test files that client and server both have by NFS, in an emulated machine.
    Nfs(nfs::Args),
    /// What runs for it in the machine.
    #[command(hide = true)]
    NfsInside(nfs::inside::Args),
    /// Pause emulated machines while programs in them use a server on this one.
    Paused(paused::Args),
    /// What runs for it in namespaces of its own.
    #[command(hide = true)]
    PausedInside(paused::inside::Args),
    /// Plant known faults, one at a time, and see whether the tests find them.
    Planted(planted::Args),
    /// Test RDMA on devices that Debian's kernel makes of Ethernet, in an emulated machine.
    Rdma(rdma::Args),
    /// What runs for it in the machine.
    #[command(hide = true)]
    RdmaInside(rdma::inside::Args),
    /// Use a server in every way for a while, and see whether it or its clients hold more and more.
    Soak(soak::Args),
    /// Run jobs of all kinds under Debian's Slurm with a pool on this machine.
    Slurm(slurm::Args),
    /// What runs for it in namespaces of its own.
    #[command(hide = true)]
    SlurmInside(slurm::inside::Args),
    /// Set up all that is needed and run the whole test suite.
    Test(test::Args),
    /// Run a command in an emulated machine with Debian's kernel, on this machine's files.
    Vm(vm::Args),
    /// Look at the broker's page in a real browser.
    Web(web::Args),
    /// The first process of such a machine.
    #[command(hide = true)]
    VmInside,
}

fn main() -> std::process::ExitCode {
    let result = match Cli::parse().command {
        Command::Codegen(args) => codegen::run(&args),
        Command::Facts(args) => facts::run(&args),
        Command::Toolchain(args) => toolchain::run(&args),
        Command::Programs(args) => programs::run(&args),
        Command::Stage(args) => stage::run(&args),
        Command::Book(args) => book::run(&args),
        Command::Release(args) => release::run(&args),
        Command::ReleaseCheckInside(args) => release::check::inside::run(&args),
        Command::Wheel(args) => wheel::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Miri(args) => miri::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Compatibility(args) => compatibility::run(&args),
        Command::DebianPrograms(args) => debian_programs::run(&args),
        Command::Counts(args) => counts::run(&args),
        Command::Clients(args) => clients::run(&args),
        Command::Cross(args) => cross::run(&args),
        Command::Etcd => etcd::ensure(),
        Command::Ssh => ssh::ensure(),
        Command::Mixed(args) => mixed::run(&args),
        Command::Mpi => mpi::ensure(),
        Command::Image(args) => image::run(&args),
        Command::ImageInside(args) => image::inside::run(&args),
        Command::Kubernetes(args) => kubernetes::run(&args),
        Command::Latency(args) => latency::run(&args),
        Command::Nfs(args) => nfs::run(&args),
        Command::NfsInside(args) => nfs::inside::run_all(&args),
        Command::Paused(args) => paused::run(&args),
        Command::PausedInside(args) => paused::inside::run(&args),
        Command::Planted(args) => planted::run(&args),
        Command::Rdma(args) => rdma::run_all(&args),
        Command::RdmaInside(args) => rdma::inside::run_all(&args),
        Command::Slurm(args) => slurm::run(&args),
        Command::SlurmInside(args) => slurm::inside::run(&args),
        Command::Soak(args) => soak::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Web(args) => web::run(&args),
        Command::Vm(args) => match vm::run(&args) {
            Ok(status) => return status.into(),
            Err(error) => Err(error),
        },
        Command::VmInside => vm::inside::run(),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
