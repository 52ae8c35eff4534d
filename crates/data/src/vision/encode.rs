//! Tensors to PNG and JPEG files.

use rushlight_core::{DType, Error, Result};
use rushlight_tensor::Tensor;

/// The pixels of `[channels, height, width]`, channels last.
fn interleaved(name: &str, image: &Tensor, channels: &[usize]) -> Result<(Vec<u8>, [usize; 3])> {
    let &[c, height, width] = image.shape() else {
        return Err(Error::shape(format!(
            "{name}: expected an image [channels, height, width], got {:?}",
            image.shape()
        )));
    };
    if image.dtype() != DType::U8 || !channels.contains(&c) || height == 0 || width == 0 {
        return Err(Error::value(format!(
            "{name}: expected uint8 of {channels:?} channels, got {:?} of {:?}",
            image.dtype(),
            image.shape()
        )));
    }
    if height > 65_535 || width > 65_535 {
        return Err(Error::value(format!("{name}: {width} x {height} pixels are too many; a side has at most 65535")));
    }
    Ok((image.permute([1, 2, 0])?.contiguous()?.to_vec::<u8>()?, [c, height, width]))
}

/// A PNG file of bytes `[channels, height, width]`: grey, colours, or either with transparency. `level` is zlib's, from
/// 0 to 9.
pub fn encode_png(image: &Tensor, level: u8) -> Result<Vec<u8>> {
    let (pixels, [channels, height, width]) = interleaved("encode_png", image, &[1, 2, 3, 4])?;
    if level > 9 {
        return Err(Error::value(format!("encode_png: compression level {level} is not between 0 and 9")));
    }
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width as u32, height as u32);
    encoder.set_color(match channels {
        1 => png::ColorType::Grayscale,
        2 => png::ColorType::GrayscaleAlpha,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_deflate_compression(match level {
        0 => png::DeflateCompression::NoCompression,
        level => png::DeflateCompression::Level(level),
    });
    let text = |e: png::EncodingError| Error::value(format!("encode_png: {e}"));
    let mut writer = encoder.write_header().map_err(text)?;
    writer.write_image_data(&pixels).map_err(text)?;
    writer.finish().map_err(text)?;
    Ok(file)
}

/// Places of a block's coefficients, in the order in which they are written.
const ZIGZAG: [usize; 64] = [
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21,
    28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54,
    47, 55, 62, 63,
];

/// Steps of the coefficients of brightness and of colour at quality 50: tables K.1 and K.2 of the standard.
const STEPS: [[u16; 64]; 2] = [
    [
        16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29,
        51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121,
        120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
    ],
    [
        17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99,
    ],
];

/// Codes of the first coefficients: how many there are of each length, and their symbols (table K.3).
const FIRST: ([u8; 16], &[u8]) =
    ([0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);

/// Codes of the other coefficients (table K.5).
const OTHERS: ([u8; 16], &[u8]) = (
    [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 0x7d],
    &[
        0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71,
        0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72,
        0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37,
        0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59,
        0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83,
        0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3,
        0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3,
        0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2,
        0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
    ],
);

/// The code and the length of each symbol.
fn codes((lengths, symbols): ([u8; 16], &[u8])) -> [(u32, u32); 256] {
    let mut found = [(0, 0); 256];
    let (mut code, mut symbols) = (0, symbols.iter());
    for (length, count) in (1..).zip(lengths) {
        for symbol in symbols.by_ref().take(count as usize) {
            found[*symbol as usize] = (code, length);
            code += 1;
        }
        code <<= 1;
    }
    found
}

/// Bits after one another; a byte of ones is followed by zeros.
struct Bits {
    bytes: Vec<u8>,
    pending: u64,
    count: u32,
}

impl Bits {
    fn put(&mut self, (code, length): (u32, u32)) {
        self.pending = self.pending << length | u64::from(code);
        self.count += length;
        while self.count >= 8 {
            self.count -= 8;
            let byte = (self.pending >> self.count) as u8;
            self.bytes.push(byte);
            if byte == 0xff {
                self.bytes.push(0);
            }
        }
        self.pending &= (1 << self.count) - 1;
    }

    /// A number of `size` bits; negative ones are written as their value minus one.
    fn number(&mut self, value: i32, size: u32) {
        let bits = if value < 0 { value - 1 } else { value } as u32;
        self.put((bits & ((1 << size) - 1), size));
    }
}

/// Bits of a number's absolute value.
fn size(value: i32) -> u32 {
    32 - value.unsigned_abs().leading_zeros()
}

/// The cosine transform of eight values.
fn cosines() -> [[f32; 8]; 8] {
    let cosine = |frequency: usize, at: usize| {
        let scale = if frequency == 0 { std::f32::consts::FRAC_1_SQRT_2 } else { 1.0 };
        0.5 * scale * ((2 * at + 1) as f32 * frequency as f32 * std::f32::consts::PI / 16.0).cos()
    };
    std::array::from_fn(|f| std::array::from_fn(|at| cosine(f, at)))
}

/// Tables that all blocks use.
struct Tables {
    codes: [[(u32, u32); 256]; 2],
    basis: [[f32; 8]; 8],
}

/// One block of 8 x 8: its cosine transform in steps, then its codes. `before` is the first coefficient of the last
/// block.
fn block(bits: &mut Bits, pixels: &[f32; 64], steps: &[u16; 64], tables: &Tables, before: &mut i32) {
    let Tables { codes, basis } = tables;
    let rows: [f32; 64] = std::array::from_fn(|k| (0..8).map(|x| basis[k % 8][x] * pixels[k / 8 * 8 + x]).sum());
    let value = |k: usize| (0..8).map(|y| basis[k / 8][y] * rows[y * 8 + k % 8]).sum::<f32>();
    let steps_of = |k: usize| (value(k) / f32::from(steps[k])).round() as i32;
    let first = steps_of(0);
    let difference = first - *before;
    *before = first;
    bits.put(codes[0][size(difference) as usize]);
    bits.number(difference, size(difference));
    let mut zeros = 0;
    for k in ZIGZAG.iter().skip(1) {
        let value = steps_of(*k);
        if value == 0 {
            zeros += 1;
            continue;
        }
        while zeros > 15 {
            bits.put(codes[1][0xf0]);
            zeros -= 16;
        }
        bits.put(codes[1][zeros << 4 | size(value) as usize]);
        bits.number(value, size(value));
        zeros = 0;
    }
    if zeros > 0 {
        bits.put(codes[1][0]);
    }
}

/// A plane of values about zero, which repeats its last row and column outside.
struct Plane {
    values: Vec<f32>,
    height: usize,
    width: usize,
}

impl Plane {
    /// The block whose first pixel is at a row and a column.
    fn block(&self, row: usize, column: usize) -> [f32; 64] {
        std::array::from_fn(|k| {
            let (y, x) = ((row + k / 8).min(self.height - 1), (column + k % 8).min(self.width - 1));
            self.values[y * self.width + x]
        })
    }

    /// The means of squares of 2 x 2 pixels.
    fn halved(&self) -> Plane {
        let (height, width) = (self.height.div_ceil(2), self.width.div_ceil(2));
        let at = |y: usize, x: usize| self.values[y.min(self.height - 1) * self.width + x.min(self.width - 1)];
        let mean = |y, x| 0.25 * (at(y, x) + at(y, x + 1) + at(y + 1, x) + at(y + 1, x + 1));
        let values = (0..height * width).map(|k| mean(k / width * 2, k % width * 2)).collect();
        Plane { values, height, width }
    }
}

/// A JPEG file (baseline; colours at half the resolution) of bytes `[1, height, width]` or `[3, height, width]`, at a
/// quality from 1 to 100.
pub fn encode_jpeg(image: &Tensor, quality: u8) -> Result<Vec<u8>> {
    let (pixels, [channels, height, width]) = interleaved("encode_jpeg", image, &[1, 3])?;
    if !(1..=100).contains(&quality) {
        return Err(Error::value(format!("encode_jpeg: quality {quality} is not between 1 and 100")));
    }
    let scale = if quality < 50 { 5000 / u32::from(quality) } else { 200 - 2 * u32::from(quality) };
    let steps = STEPS.map(|table| table.map(|step| ((u32::from(step) * scale + 50) / 100).clamp(1, 255) as u16));
    let plane = |weights: [f32; 3], shift: f32| {
        let value = |p: &[u8]| p.iter().zip(weights).map(|(v, w)| f32::from(*v) * w).sum::<f32>() - shift;
        Plane { values: pixels.chunks_exact(channels).map(value).collect(), height, width }
    };
    let planes = if channels == 1 {
        vec![plane([1.0, 0.0, 0.0], 128.0)]
    } else {
        let colours = [[-0.168_736, -0.331_264, 0.5], [0.5, -0.418_688, -0.081_312]].map(|w| plane(w, 0.0).halved());
        let [blue, red] = colours;
        vec![plane([0.299, 0.587, 0.114], 128.0), blue, red]
    };
    let mut file = vec![0xff, 0xd8];
    let mut segment = |marker: u8, content: &[u8]| {
        file.extend([0xff, marker]);
        file.extend(((content.len() + 2) as u16).to_be_bytes());
        file.extend(content);
    };
    segment(0xe0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0");
    for (number, table) in (0u8..).zip(&steps[..planes.len().min(2)]) {
        let content: Vec<u8> = std::iter::once(number).chain(ZIGZAG.iter().map(|k| table[*k] as u8)).collect();
        segment(0xdb, &content);
    }
    let mut frame = vec![8];
    frame.extend((height as u16).to_be_bytes());
    frame.extend((width as u16).to_be_bytes());
    frame.push(channels as u8);
    let mut scan = vec![channels as u8];
    for number in 0..channels as u8 {
        // Brightness is sampled twice as often as colours.
        frame.extend([number + 1, if channels == 3 && number == 0 { 0x22 } else { 0x11 }, number.min(1)]);
        scan.extend([number + 1, 0]);
    }
    scan.extend([0, 63, 0]);
    segment(0xc0, &frame);
    for (class, (lengths, symbols)) in [(0x00, FIRST), (0x10, OTHERS)] {
        segment(0xc4, &[&[class][..], &lengths, symbols].concat());
    }
    segment(0xda, &scan);
    // Colours use the codes of brightness: files are a little larger than with codes of their own.
    let tables = Tables { codes: [codes(FIRST), codes(OTHERS)], basis: cosines() };
    let mut bits = Bits { bytes: file, pending: 0, count: 0 };
    let mut before = [0; 3];
    let side = if channels == 3 { 16 } else { 8 };
    for row in (0..height).step_by(side) {
        for column in (0..width).step_by(side) {
            for (number, plane) in planes.iter().enumerate() {
                let blocks = if number == 0 && channels == 3 { 2 } else { 1 };
                let (row, column) = if number == 0 { (row, column) } else { (row / 2, column / 2) };
                for (down, right) in (0..blocks).flat_map(|i| (0..blocks).map(move |j| (8 * i, 8 * j))) {
                    let pixels = plane.block(row + down, column + right);
                    block(&mut bits, &pixels, &steps[number.min(1)], &tables, &mut before[number]);
                }
            }
        }
    }
    // The last byte is filled with ones.
    bits.put((0x7f, 7));
    let mut file = bits.bytes;
    file.extend([0xff, 0xd9]);
    Ok(file)
}
