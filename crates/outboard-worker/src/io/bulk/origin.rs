//! Where the bytes of chunks are: in memory of this process, or of a device.

use std::borrow::Cow;
use std::sync::Arc;

/// Device memory that an adapter reads and writes, as this process reaches it when the adapter does
/// not.
pub trait DeviceBytes: Send + Sync {
    /// Copies bytes from an address of the device; leaves `to` as it is if the device has failed.
    fn read(&self, address: u64, to: &mut [u8]);

    /// Copies bytes to an address of the device, unless that has failed.
    fn write(&self, address: u64, from: &[u8]);
}

/// Where the bytes of a chunk are that goes. Whoever made it sees to it that they stay there.
#[derive(Clone)]
pub(super) enum Origin {
    /// Nowhere: there are none, or none that are still to go.
    Nothing,
    Host(*const u8),
    Device(u64, Arc<dyn DeviceBytes>),
    /// In memory of the chunk's own.
    Copied(Arc<[u8]>),
}

// SAFETY: whoever made it promised that the bytes stay valid until they are needed no longer, in
// whatever thread.
unsafe impl Send for Origin {}

impl Origin {
    /// The address by which an adapter knows the bytes, if it does.
    pub(super) fn address(&self) -> *const u8 {
        match self {
            Origin::Nothing => std::ptr::dangling(),
            Origin::Host(bytes) => *bytes,
            Origin::Device(address, _) => *address as *const u8,
            Origin::Copied(bytes) => bytes.as_ptr(),
        }
    }

    /// The bytes.
    ///
    /// # Safety
    /// They are still there, and stay as long as what this returns.
    pub(super) unsafe fn bytes(&self, len: usize) -> Cow<'_, [u8]> {
        match self {
            Origin::Nothing => Cow::Borrowed(&[]),
            Origin::Copied(bytes) => Cow::Borrowed(bytes),
            Origin::Host(bytes) => {
                // SAFETY: by the contract above.
                Cow::Borrowed(unsafe { std::slice::from_raw_parts(*bytes, len) })
            }
            Origin::Device(address, device) => {
                let mut bytes = vec![0; len];
                device.read(*address, &mut bytes);
                Cow::Owned(bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use outboard_session::chunks::Cut;
    use outboard_transport::lane::{read_header, write_frame};
    use outboard_transport::{pipe, read_exact};
    use outboard_wire::lane::{LaneHeader, LaneKind};

    use super::super::{Bulk, Sink};
    use super::*;

    const BASE: u64 = 0x7_0000_0000;
    const CHUNK: u32 = 64 << 10;
    const PATIENCE: Duration = Duration::from_secs(60);

    /// A device's memory from `BASE` on, which no address of this process shows.
    struct FarMemory(Mutex<Vec<u8>>);

    impl FarMemory {
        fn with(bytes: Vec<u8>) -> Arc<FarMemory> {
            Arc::new(FarMemory(Mutex::new(bytes)))
        }
    }

    impl DeviceBytes for FarMemory {
        fn read(&self, address: u64, to: &mut [u8]) {
            let at = (address - BASE) as usize;
            to.copy_from_slice(&self.0.lock().unwrap()[at..at + to.len()]);
        }

        fn write(&self, address: u64, from: &[u8]) {
            let at = (address - BASE) as usize;
            self.0.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
        }
    }

    /// Chunks that belong to such memory.
    struct Arriving(Arc<FarMemory>, std::sync::mpsc::Sender<u32>);

    // SAFETY: nobody follows these addresses.
    unsafe impl Sink for Arriving {
        fn slot(&self, index: u32, _len: u32) -> *mut u8 {
            (BASE + u64::from(index) * u64::from(CHUNK)) as *mut u8
        }

        fn device(&self) -> Option<&dyn DeviceBytes> {
            Some(&*self.0)
        }

        fn filled(&self, index: u32) {
            self.1.send(index).unwrap();
        }
    }

    fn pattern(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 7 % 251) as u8).collect()
    }

    #[test]
    fn without_an_adapter_bytes_of_a_device_go_by_its_driver() {
        let (client, worker) = pipe::pair().unwrap();
        let bulk = Bulk::new(None, Arc::default());
        bulk.add_lane(worker).unwrap();
        let memory = FarMemory::with(pattern(3000));
        let (told, sent) = channel();
        // SAFETY: the memory stays until the channel has been told.
        unsafe {
            let device = Arc::clone(&memory) as Arc<dyn DeviceBytes>;
            let sent = move || told.send(()).unwrap();
            bulk.send_from_device(9, (4, 2000), (BASE + 1000, device), sent);
        }
        let header = read_header(&*client, || false).unwrap();
        assert_eq!(header, LaneHeader { kind: LaneKind::Chunk, transfer: 9, index: 4, len: 2000 });
        let mut bytes = vec![0; 2000];
        read_exact(&*client, &mut bytes).unwrap();
        assert_eq!(bytes, pattern(3000)[1000..]);
        sent.recv_timeout(PATIENCE).unwrap();
    }

    /// Chunks of a copy that has been announced, and one that comes before that.
    #[test]
    fn without_an_adapter_bytes_come_to_a_device_by_its_driver() {
        let (client, worker) = pipe::pair().unwrap();
        let bulk = Bulk::new(None, Arc::default());
        bulk.add_lane(worker).unwrap();
        let len = 2 * CHUNK as usize + 100;
        let bytes = pattern(len);
        let send = |index: u32| {
            let chunk = bytes.chunks(CHUNK as usize).nth(index as usize).unwrap();
            let (kind, len) = (LaneKind::Chunk, chunk.len() as u32);
            write_frame(&*client, &LaneHeader { kind, transfer: 5, index, len }, chunk).unwrap();
        };
        send(2);
        // It is parked.
        std::thread::sleep(Duration::from_millis(100));
        let memory = FarMemory::with(vec![0; len]);
        let (told, filled) = channel();
        let sink = Arc::new(Arriving(Arc::clone(&memory), told));
        bulk.receive(5, Cut::new(len as u64, CHUNK).unwrap(), sink).unwrap();
        assert_eq!(filled.recv_timeout(PATIENCE), Ok(2));
        send(1);
        send(0);
        assert_eq!(filled.recv_timeout(PATIENCE), Ok(1));
        assert_eq!(filled.recv_timeout(PATIENCE), Ok(0));
        assert!(*memory.0.lock().unwrap() == bytes);
    }
}
