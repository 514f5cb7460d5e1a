//! How long memory is open while the device works.

use std::time::Duration;

/// While the device works, mapped memory that the program has touched is left open for this long:
/// then the written pages are sent, and the next touch fetches what the device has written
/// meanwhile.
pub(super) const GLIMPSE: Duration = Duration::from_millis(1);
/// Or for so many times as long as it took to open it: a batch that the program is writing would
/// else be brought anew many times.
pub(super) const GLIMPSES: u32 = 8;
