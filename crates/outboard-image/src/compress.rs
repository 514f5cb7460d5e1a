//! The two compressions of fat binaries, with bounded output.

use std::io::Read;

use crate::error::Error;

/// Most bytes that one compressed LZ4 byte can stand for.
const LZ4_RATIO: u64 = 255;

/// A raw LZ4 block that decompresses to exactly `size` bytes.
pub(crate) fn lz4(block: &[u8], size: u64) -> Result<Vec<u8>, Error> {
    // A claim that the block cannot fulfil must not cost memory.
    if size > (block.len() as u64).saturating_mul(LZ4_RATIO).saturating_add(64) {
        return Err(Error::Compression("LZ4"));
    }
    let mut contents = vec![0; size as usize];
    match lz4_flex::block::decompress_into(block, &mut contents) {
        Ok(len) if len == contents.len() => Ok(contents),
        _ => Err(Error::Compression("LZ4")),
    }
}

/// Zstandard frames that decompress to exactly `size` bytes.
pub(crate) fn zstd(frame: &[u8], size: u64) -> Result<Vec<u8>, Error> {
    let damaged = |_| Error::Compression("zstd");
    let decoder =
        ruzstd::decoding::StreamingDecoder::new(frame).map_err(|_| Error::Compression("zstd"))?;
    // Grows with what really comes out; one byte more than announced is already wrong.
    let mut contents = Vec::new();
    decoder.take(size.saturating_add(1)).read_to_end(&mut contents).map_err(damaged)?;
    if contents.len() as u64 == size { Ok(contents) } else { Err(Error::Compression("zstd")) }
}
