//! How many bytes a second a stream carries between two RDMA devices of this machine, which part of
//! the bytes on the wire is payload, and what an adapter writes and reads itself from registered to
//! registered memory: `rdma-bandwidth DEVICE DEVICE [INTERFACE]`. The
//! environment's `DEPTH`, `MESSAGE`, `RING` and `MTU` are the settings.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use outboard_rdma::{Device, Mtu};
use outboard_transport::Outcome;
use outboard_transport::rdma::direct::{self, Lender, Mover};
use outboard_transport::rdma::{Settings, move_to, take_up};
use outboard_transport::tcp::Tcp;
use outboard_transport::{Interest, Spin, SpinLimits, Stream, Transport};

const TIME: Duration = Duration::from_secs(4);
const AT_ONCE: usize = 1 << 20;

fn main() -> io::Result<()> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let [client, server, interface @ ..] = &names[..] else {
        return Err(io::Error::other("rdma-bandwidth DEVICE DEVICE [INTERFACE]"));
    };
    let (lender, mover) = lend(client, server)?;
    let (client, server) = connect(client, server)?;
    let interface = interface.first().map(String::as_str);
    for (name, from, to) in [("up", &client, &server), ("down", &server, &client)] {
        let before = on_the_wire(interface);
        let (bytes, time) = carry(&**from, &**to)?;
        let wire = on_the_wire(interface).zip(before).map(|(after, before)| after - before);
        let mut line = format!("{name} {:.2} MB/s", bytes as f64 / 1e6 / time.as_secs_f64());
        if let Some(wire) = wire {
            line += &format!(", payload {:.4} of the wire", bytes as f64 / wire as f64);
        }
        writeln!(io::stdout(), "{line}")?;
    }
    for (name, reads) in [("written", false), ("read", true)] {
        let rate = move_directly(&lender, &mover, reads)?;
        writeln!(io::stdout(), "{name} {rate:.2} MB/s")?;
    }
    Ok(())
}

/// Threads of lanes, each with a chunk.
const THREADS: usize = 4;

fn lend(client: &str, server: &str) -> io::Result<(Lender, Mover)> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let (of_client, of_server) = outboard_transport::pipe::pair()?;
    let (client, server) =
        (Device::open(client)?.endpoint(None)?, Device::open(server)?.endpoint(None)?);
    let taking =
        std::thread::spawn(move || direct::take(&*of_server, || Ok(server), settings(), deadline));
    let lender = direct::lend(&*of_client, client, settings(), deadline)??;
    let mover = taking.join().map_err(|_| io::Error::other("the server's thread failed"))???;
    Ok((lender, mover.ok_or_else(|| io::Error::other("the client lends nothing"))?))
}

/// Has the server's adapter move chunks for a while; how many MB a second.
fn move_directly(lender: &Lender, mover: &Mover, reads: bool) -> io::Result<f64> {
    let (here, there) = (vec![7_u8; THREADS * AT_ONCE], vec![9_u8; THREADS * AT_ONCE]);
    let [start, lent] = [&here, &there].map(|bytes| bytes.as_ptr().cast_mut());
    // SAFETY: both vectors outlive what is done with them below.
    let loan = unsafe { lender.lend(lent, there.len()) }?;
    // SAFETY: as above.
    let own = unsafe { mover.add_memory(start, here.len()) }?;
    let began = Instant::now();
    let moved: u64 = mover.moved().iter().sum();
    let done = std::thread::scope(|scope| {
        let threads = (0..THREADS).map(|thread| {
            let offset = thread * AT_ONCE;
            let place = loan.remote(loan.addresses().start + offset as u64);
            let start = start as usize;
            scope.spawn(move || -> io::Result<()> {
                let place = place.ok_or_else(|| io::Error::other("nothing is lent"))?;
                let here = (start + offset) as *mut u8;
                while began.elapsed() < TIME {
                    // SAFETY: each thread has a part of its own, whose bytes nobody looks at.
                    unsafe {
                        if reads {
                            mover.read(here, AT_ONCE, place)?;
                        } else {
                            mover.write(here, AT_ONCE, place)?;
                        }
                    }
                }
                Ok(())
            })
        });
        let threads: Vec<_> = threads.collect();
        let failed = |_| io::Error::other("a thread failed");
        threads.into_iter().try_for_each(|thread| thread.join().map_err(failed)?)
    });
    let bytes = mover.moved().iter().sum::<u64>() - moved;
    let rate = bytes as f64 / 1e6 / began.elapsed().as_secs_f64();
    mover.remove_memory(own);
    lender.take_back(loan);
    drop((here, there));
    done.map(|()| rate)
}

fn settings() -> Settings {
    let usual = Settings::default();
    let set =
        |name, usual| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual);
    Settings {
        depth: set("DEPTH", usual.depth),
        message: set("MESSAGE", usual.message),
        ring: set("RING", usual.ring),
        mtu: Mtu::within(set("MTU", usual.mtu.bytes())).unwrap_or(usual.mtu),
    }
}

fn connect(client: &str, server: &str) -> io::Result<(Arc<dyn Stream>, Arc<dyn Stream>)> {
    let deadline = Instant::now() + Duration::from_secs(30);
    let listener = Tcp.listen("127.0.0.1:0")?;
    let of_client = Tcp.connect(&listener.address()?, Duration::from_secs(30))?;
    let of_server = listener.accept()?;
    let endpoint = Device::open(server)?.endpoint(None)?;
    let taking =
        std::thread::spawn(move || take_up(&of_server, |_| Ok(endpoint), settings(), deadline));
    let endpoint = Device::open(client)?.endpoint(None)?;
    let client = move_to(&of_client, (0, false), endpoint, settings(), deadline)?;
    let server = taking.join().map_err(|_| io::Error::other("the server's thread failed"))??.0;
    match (client, server) {
        (Outcome::Moved(client), Outcome::Moved(server)) => Ok((client, server)),
        (Outcome::Stays(Some(why)), _) => Err(why),
        _ => Err(io::Error::other("the sides do not move")),
    }
}

/// Bytes that have left both ends of the link.
fn on_the_wire(interface: Option<&str>) -> Option<u64> {
    let path = format!("/sys/class/net/{}/statistics", interface?);
    let read = |name| std::fs::read_to_string(format!("{path}/{name}")).ok()?.trim().parse().ok();
    let (sent, received): (u64, u64) = (read("tx_bytes")?, read("rx_bytes")?);
    Some(sent + received)
}

/// Writes for a while; how much was read, and how long it took.
fn carry(from: &dyn Stream, to: &dyn Stream) -> io::Result<(u64, Duration)> {
    let began = Instant::now();
    let reading = |total: &std::sync::mpsc::Receiver<u64>| {
        let (mut buffer, mut count) = (vec![0; AT_ONCE], 0);
        let mut spin = Spin::new(to, SpinLimits::default().least);
        let mut end = None;
        while end != Some(count) {
            match to.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => {
                    count += bytes as u64;
                    spin.restart();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if spin.again() {
                        continue;
                    }
                    let a_while = Some(Duration::from_millis(100));
                    to.wait(Interest::READ, None, a_while)?;
                }
                Err(error) => return Err(error),
            }
            end = end.or_else(|| total.try_recv().ok());
        }
        Ok((count, began.elapsed()))
    };
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || reading(&told));
        let (bytes, mut count) = (vec![7; AT_ONCE], 0);
        while began.elapsed() < TIME {
            match from.write(&[IoSlice::new(&bytes)]) {
                Ok(written) => count += written as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    from.wait(Interest::WRITE, None, Some(Duration::from_millis(100)))?;
                }
                Err(error) => return Err(error),
            }
        }
        let _ = tell.send(count);
        reader.join().map_err(|_| io::Error::other("the reader's thread failed"))?
    })
}
