//! TensorFlow's record format: length, checksum of the length, data, checksum of the data.

/// The table of CRC-32C (Castagnoli), reflected.
const TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
};

/// CRC-32C of bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| (crc >> 8) ^ TABLE[((crc ^ u32::from(byte)) & 0xff) as usize])
}

/// A masked checksum, as in records: a checksum of data that contains checksums would be weak.
fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// Whether `checksum` is the masked checksum of the bytes.
pub fn is_masked_checksum(bytes: &[u8], checksum: &[u8]) -> bool {
    masked(bytes) == checksum
}

/// A record.
pub fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), data, &masked(data)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720, appendix B.4.
    #[test]
    fn checksums() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46dd_794e);
    }
}
