//! Rates between a virtual machine and its host: through memory that both share, and over the
//! network; beside what the machine copies within its own memory.
//!
//! ```text
//! host:  ivshmem-bandwidth serve /dev/shm/NAME 127.0.0.1:9999
//! guest: ivshmem-bandwidth HOST:9999 [DEVICE]
//! ```
//!
//! Without a guest, DEVICE is the same file.

#![allow(clippy::print_stdout)]

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_transport::ivshmem::{Device, Part, Region, move_to, take_up};
use outboard_transport::tcp::Tcp;
use outboard_transport::{Outcome, Stream, Transport, read_exact, stay, write_all};

/// Bytes of a message.
const MESSAGE: usize = 4 << 20;
/// How long each rate is measured.
const TIME: Duration = Duration::from_secs(3);
/// How many messages follow, after one with their direction.
const BATCH: usize = 8;
const TO_HOST: u8 = 1;
const TO_GUEST: u8 = 2;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", file, address] => serve(file, address),
        [address] => measure(address, None),
        [address, device] => measure(address, Some(device)),
        _ => Err(io::Error::other("ivshmem-bandwidth serve FILE ADDRESS | ADDRESS [DEVICE]")),
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn serve(file: &str, address: &str) -> io::Result<()> {
    let region = Region::at(file);
    let (id, _) = region.prepare()?;
    let allotted = region.allot(id)?.ok_or(io::ErrorKind::NotFound)?;
    let part = Part::map(allotted.file, allotted.offset, allotted.bytes)?;
    let listener = Tcp.listen(address)?;
    println!("{}", listener.address()?);
    loop {
        let met = listener.accept()?;
        let place = [allotted.offset.to_le_bytes(), allotted.bytes.to_le_bytes()].concat();
        let part = Arc::clone(&part);
        std::thread::spawn(move || {
            let outcome = write_all(&*met, &place).and_then(|()| take_up(&met, &part, soon()));
            let served = outcome.and_then(|outcome| match outcome {
                Outcome::Moved(stream) => answer(&*stream),
                Outcome::Stays(_) => answer(&*met),
            });
            if let Err(error) = served {
                eprintln!("{error}");
            }
        });
    }
}

fn answer(stream: &dyn Stream) -> io::Result<()> {
    let mut message = vec![7; MESSAGE];
    let mut direction = [0];
    while read_exact(stream, &mut direction).is_ok() {
        for _ in 0..BATCH {
            match direction {
                [TO_HOST] => read_exact(stream, &mut message)?,
                _ => write_all(stream, &message)?,
            }
        }
        if direction == [TO_HOST] {
            write_all(stream, &direction)?;
        }
    }
    Ok(())
}

fn measure(address: &str, device: Option<&str>) -> io::Result<()> {
    let (from, mut to) = (vec![1_u8; MESSAGE], vec![0_u8; MESSAGE]);
    let copied = rate(|| {
        for _ in 0..BATCH {
            to.copy_from_slice(std::hint::black_box(&from));
            std::hint::black_box(&mut to);
        }
        Ok(())
    })?;
    println!("memcpy in this machine {copied:.2} GB/s");
    let device = Device::find(device.map(Path::new))?.ok_or(io::ErrorKind::NotFound)?;
    let (mut place, met) = ([0; 16], Tcp.connect(address, Duration::from_secs(20))?);
    read_exact(&*met, &mut place)?;
    let [offset, bytes] = [0, 8].map(|at| {
        let number: [u8; 8] = std::array::from_fn(|byte| place[at + byte]);
        u64::from_le_bytes(number)
    });
    let part = Part::map(device.into_file(), offset, bytes)?;
    let Outcome::Moved(shared) = move_to(&met, &part, soon())? else {
        return Err(io::Error::other("the connection does not move"));
    };
    let network = Tcp.connect(address, Duration::from_secs(20))?;
    read_exact(&*network, &mut place)?;
    stay(&*network)?;
    for (name, stream) in [("shared memory", &*shared), ("the network", &*network)] {
        let to_host = rate(|| send(stream, &from))?;
        let to_guest = rate(|| receive(stream, &mut to))?;
        println!(
            "{name}: to the host {to_host:.2} GB/s ({:.2} of memcpy), from it {to_guest:.2} ({:.2})",
            to_host / copied,
            to_guest / copied
        );
    }
    Ok(())
}

fn send(stream: &dyn Stream, message: &[u8]) -> io::Result<()> {
    write_all(stream, &[TO_HOST])?;
    (0..BATCH).try_for_each(|_| write_all(stream, message))?;
    read_exact(stream, &mut [0])
}

fn receive(stream: &dyn Stream, room: &mut [u8]) -> io::Result<()> {
    write_all(stream, &[TO_GUEST])?;
    (0..BATCH).try_for_each(|_| read_exact(stream, room))
}

/// GB/s of what moves a batch each time.
fn rate(mut batch: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    batch()?;
    let (start, mut count) = (Instant::now(), 0);
    while start.elapsed() < TIME {
        batch()?;
        count += 1;
    }
    Ok((count * BATCH * MESSAGE) as f64 / 1e9 / start.elapsed().as_secs_f64())
}
