//! PNG and JPEG files to tensors.

use crate::download::failed;
use rushlight_core::{Error, Result};
use rushlight_tensor::Tensor;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// Limits for an image file.
#[derive(Clone, Copy, Debug)]
pub struct DecodeLimits {
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Width times height.
    pub pixels: usize,
}

impl Default for DecodeLimits {
    /// 256 mebibytes, and as many pixels as Pillow takes.
    fn default() -> Self {
        Self { file_bytes: 256 << 20, pixels: 178_956_970 }
    }
}

/// The channels of a decoded image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colours {
    /// Those of the file.
    #[default]
    Unchanged,
    /// One: brightness.
    Gray,
    /// Brightness and opacity.
    GrayAlpha,
    /// Red, green and blue.
    Rgb,
    /// Red, green, blue and opacity.
    RgbAlpha,
}

/// A PNG or JPEG file as a colour image `[3, height, width]` of `uint8`. Grey is spread over the three channels and
/// transparency left out, as by Pillow's `convert("RGB")`.
pub fn read_image(path: &Path, limits: DecodeLimits) -> Result<Tensor> {
    let file = File::open(path).map_err(|e| failed("open", path, &e))?;
    let mut bytes = Vec::new();
    let mut reader = BufReader::new(file).take(limits.file_bytes.saturating_add(1));
    reader.read_to_end(&mut bytes).map_err(|e| failed("read", path, &e))?;
    decoded(bytes, Colours::Rgb, limits)
        .map_err(|e| Error::value(format!("read_image: cannot decode {}: {e}", path.display())))?
}

/// The bytes of a PNG or JPEG file as an image `[channels, height, width]` of `uint8`.
pub fn decode_image(bytes: Vec<u8>, colours: Colours, limits: DecodeLimits) -> Result<Tensor> {
    decoded(bytes, colours, limits).map_err(|e| Error::value(format!("decode_image: {e}")))?
}

fn decoded(bytes: Vec<u8>, colours: Colours, limits: DecodeLimits) -> Result<Result<Tensor>, String> {
    let decoded = if bytes.len() as u64 > limits.file_bytes {
        return Err(format!("the file has more than {} bytes", limits.file_bytes));
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        decode_png(bytes, limits)?
    } else if bytes.starts_with(b"\xff\xd8\xff") {
        decode_jpeg(bytes, colours, limits)?
    } else {
        return Err("only PNG and JPEG are read".into());
    };
    decoded.planes(colours)
}

/// Pixels as they come from a decoder, channels last.
struct Decoded {
    pixels: Vec<u8>,
    channels: usize,
    height: usize,
    width: usize,
}

impl Decoded {
    /// Planes of the wanted channels.
    fn planes(self, colours: Colours) -> Result<Result<Tensor>, String> {
        let count = self.height * self.width;
        if self.channels == 0 || self.pixels.len() < count * self.channels {
            return Err("it is cut off".into());
        }
        // One or two channels are grey with or without transparency.
        let (grey, opacity) = (self.channels < 3, self.channels.is_multiple_of(2));
        let brightness = |p: &[u8]| {
            let sum = 299 * u32::from(p[0]) + 587 * u32::from(p[1]) + 114 * u32::from(p[2]);
            ((sum + 500) / 1000) as u8
        };
        let wanted: usize = match colours {
            Colours::Unchanged => self.channels,
            Colours::Gray => 1,
            Colours::GrayAlpha => 2,
            Colours::Rgb => 3,
            Colours::RgbAlpha => 4,
        };
        let mut planes = Vec::with_capacity(wanted * count);
        for plane in 0..wanted {
            let pixels = self.pixels.chunks_exact(self.channels).take(count);
            if wanted.is_multiple_of(2) && plane == wanted - 1 {
                planes.extend(pixels.map(|p| if opacity { p[p.len() - 1] } else { 255 }));
            } else if wanted < 3 {
                planes.extend(pixels.map(|p| if grey { p[0] } else { brightness(p) }));
            } else {
                planes.extend(pixels.map(|p| p[if grey { 0 } else { plane }]));
            }
        }
        Ok(Tensor::from_slice(&planes, [wanted, self.height, self.width]))
    }
}

fn check_pixels(height: usize, width: usize, limits: DecodeLimits) -> Result<(), String> {
    match height.checked_mul(width) {
        Some(n) if n > 0 && n <= limits.pixels => Ok(()),
        _ => Err(format!("{width} x {height} pixels are none or more than the {} allowed", limits.pixels)),
    }
}

fn decode_png(bytes: Vec<u8>, limits: DecodeLimits) -> Result<Decoded, String> {
    let text = |e: png::DecodingError| e.to_string();
    let memory = limits.pixels.saturating_mul(8);
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: memory });
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    let mut reader = decoder.read_info().map_err(text)?;
    let (width, height) = (reader.info().width as usize, reader.info().height as usize);
    check_pixels(height, width, limits)?;
    let size = reader.output_buffer_size().ok_or("its size is absurd")?;
    let mut pixels = vec![0; size];
    let frame = reader.next_frame(&mut pixels).map_err(text)?;
    Ok(Decoded { pixels, channels: frame.color_type.samples(), height, width })
}

fn decode_jpeg(bytes: Vec<u8>, colours: Colours, limits: DecodeLimits) -> Result<Decoded, String> {
    let options = DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(Cursor::new(bytes), options);
    decoder.decode_headers().map_err(|e| e.to_string())?;
    let grey = match colours {
        Colours::Gray | Colours::GrayAlpha => true,
        Colours::Unchanged => decoder.input_colorspace() == Some(ColorSpace::Luma),
        Colours::Rgb | Colours::RgbAlpha => false,
    };
    if grey {
        decoder.set_options(DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::Luma));
    }
    let info = decoder.info().ok_or("it has no header")?;
    let (width, height) = (info.width as usize, info.height as usize);
    check_pixels(height, width, limits)?;
    let pixels = decoder.decode().map_err(|e| e.to_string())?;
    let channels = decoder.output_colorspace().ok_or("its colours are unknown")?.num_components();
    Ok(Decoded { pixels, channels, height, width })
}
