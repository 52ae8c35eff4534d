// Runs one kernel of flash_hopper.cu, or of flash.cu (WARPGROUP is defined), on problems of several shapes and compares
// with a plain attention.
static std::mt19937 numbers(7);
static float random_number() { return (int)(numbers() % 2001 - 1000) / 1000.0f; }

struct Tensor {
    u64 sizes[4], strides[4];  // batch, heads, rows, columns
    std::vector<T> data;
    std::vector<float> values;  // the same numbers as floats: conversions are slow
    // Heads side by side in a row, as projections produce them, or heads one after the other. Rows are padded by `gap`
    // elements.
    Tensor(u64 b, u64 h, u64 n, u64 d, bool side_by_side, u64 gap, bool random) : sizes{b, h, n, d} {
        u64 row = d + gap;
        if (side_by_side) strides[0] = n * h * row, strides[1] = row, strides[2] = h * row;
        else strides[0] = h * n * row, strides[1] = n * row, strides[2] = row;
        strides[3] = 1;
        data.resize(b * h * n * row, convert<T>(random ? 77.0f : -99.0f));
        if (random) each([&](u64, u64, u64, u64, T& x) { x = convert<T>(random_number()); });
        for (T x : data) values.push_back(plain(x));
    }
    u64 offset(u64 b, u64 h, u64 i, u64 c) { return b * strides[0] + h * strides[1] + i * strides[2] + c; }
    T& at(u64 b, u64 h, u64 i, u64 c) { return data[offset(b, h, i, c)]; }
    float value(u64 b, u64 h, u64 i, u64 c) { return values[offset(b, h, i, c)]; }
    template <class F> void each(F f) {
        for (u64 b = 0; b < sizes[0]; b++) for (u64 h = 0; h < sizes[1]; h++) for (u64 i = 0; i < sizes[2]; i++) for (u64 c = 0; c < sizes[3]; c++) f(b, h, i, c, at(b, h, i, c));
    }
#ifndef WARPGROUP
    std::unique_ptr<Meaning> meaning(int rows) {
        return std::make_unique<Meaning>(Meaning{data.data(), {sizes[3], sizes[2], sizes[1], sizes[0]}, {1, strides[2], strides[1], strides[0]}, rows});
    }
#endif
};
#ifndef WARPGROUP
static Map map_of(const std::unique_ptr<Meaning>& m) { Map map = {}; map.words[0] = (u64)m.get(); return map; }
#endif

struct Worst {
    const char* what;
    double error = 0, scale = 0;
    void add(double got, double want) { double e = fabs(got - want); if (!(e <= error)) error = e; if (fabs(want) > scale) scale = fabs(want); }
    bool bad() {
        bool bad = !(error <= 0.02 * (scale > 1e-3 ? scale : 1e-3));
        printf("  %s: error %.2g of %.2g%s\n", what, error, scale, bad ? "  WRONG" : "");
        return bad;
    }
};

static bool check(u64 b, u64 heads, u64 kv, u64 l, u64 s, u64 d, bool side, u64 gap, unsigned blocks, u32 together) {
    printf("batch %llu heads %llu/%llu rows %llu x %llu of %llu, %s, %u blocks\n", b, heads, kv, l, s, d, side ? "side by side" : "one after the other", blocks);
    Tensor q(b, heads, l, d, side, gap, true), k(b, kv, s, d, side, gap, true), v(b, kv, s, d, side, gap, true), out(b, heads, l, d, side, gap, false), dout(b, heads, l, d, side, gap, true);
    Tensor dq(b, heads, l, d, side, gap, false), dk(b, kv, s, d, side, gap, false), dv(b, kv, s, d, side, gap, false);
    std::vector<T> bias(l * s);
    std::vector<u8> seen(l * s);
    for (auto& x : bias) x = convert<T>(random_number());
    for (auto& x : seen) x = numbers() % 3 != 0 ? 1 + numbers() % 255 : 0;
    // A query that sees no key.
    for (u64 j = 0; j < s; j++) seen[3 * s + j] = 0;
    Spec spec = {};
    spec.q = q.data.data(), spec.k = k.data.data(), spec.v = v.data.data();
    for (int n = 0; n < 4; n++) spec.q_strides[n] = q.strides[n], spec.k_strides[n] = k.strides[n], spec.v_strides[n] = v.strides[n];
    spec.mask = MASK == 1 ? (void*)seen.data() : (void*)bias.data();
    spec.mask_strides[2] = s, spec.mask_strides[3] = 1;
    spec.batch = b, spec.heads = heads, spec.kv_heads = kv, spec.l = l, spec.s = s, spec.d = spec.dv = d;
    spec.scale = 0.5, spec.p = DROPOUT ? 0.25 : 0;
    spec.stream = {5, 3};
    double enlarged = 1 / (1 - spec.p);
    // Plain attention.
    std::vector<double> o(b * heads * l * d), gq(o.size()), gk(b * kv * s * d), gv(gk.size());
    std::vector<float> lse(b * heads * l), got_lse(lse.size(), -99);
    std::vector<double> delta(lse.size());
    for (u64 n = 0; n < b * heads; n++) {
        u64 bi = n / heads, h = n % heads, kh = h / (heads / kv);
        for (u64 i = 0; i < l; i++) {
            std::vector<double> p(s), keep(s, 1), dp(s);
            double total = 0;
            for (u64 j = 0; j < s; j++) {
                double x = 0;
                for (u64 c = 0; c < d; c++) x += (double)q.value(bi, h, i, c) * k.value(bi, kh, j, c);
                x *= spec.scale;
                bool sees = !(CAUSAL && j > i);
                if (MASK == 1) sees &= seen[i * s + j] != 0;
                if (MASK == 2) x += plain(bias[i * s + j]);
                p[j] = sees ? exp(x) : 0;
                total += p[j];
                if (DROPOUT) {
                    u64 word = (n * l + i) * s + j;
                    u32 words[4];
                    philox_block(spec.stream, word / 4, words);
                    keep[j] = (float)(words[word % 4] >> 8) * (1.0f / 16777216.0f) >= (float)spec.p ? enlarged : 0;
                }
            }
            lse[n * l + i] = total == 0 ? -(float)INFINITY : (float)log(total);
            for (u64 j = 0; j < s && total > 0; j++) p[j] /= total;
            for (u64 c = 0; c < d; c++) {
                double x = 0;
                for (u64 j = 0; j < s; j++) x += p[j] * keep[j] * v.value(bi, kh, j, c);
                o[(n * l + i) * d + c] = x;
#ifndef FORWARD
                out.at(bi, h, i, c) = convert<T>((float)x);
#endif
                delta[n * l + i] += x * dout.value(bi, h, i, c);
            }
            for (u64 j = 0; j < s; j++) {
                double x = 0;
                for (u64 c = 0; c < d; c++) x += (double)dout.value(bi, h, i, c) * v.value(bi, kh, j, c);
                double ds = p[j] * (x * keep[j] - delta[n * l + i]) * spec.scale;
                for (u64 c = 0; c < d; c++) {
                    gq[(n * l + i) * d + c] += ds * k.value(bi, kh, j, c);
                    gk[((bi * kv + kh) * s + j) * d + c] += ds * q.value(bi, h, i, c);
                    gv[((bi * kv + kh) * s + j) * d + c] += p[j] * keep[j] * dout.value(bi, h, i, c);
                }
            }
        }
    }
    Saved saved = {};
    saved.out = out.data.data(), saved.dout = dout.data.data(), saved.lse = lse.data();
    for (int n = 0; n < 4; n++) saved.out_strides[n] = out.strides[n], saved.dout_strides[n] = dout.strides[n];
    bool bad = false;
    auto compare = [&](const char* what, Tensor& got, const std::vector<double>& want) {
        Worst worst{what};
        u64 n = 0;
        got.each([&](u64, u64, u64, u64, T& x) { worst.add(plain(x), want[n++]); });
        // The kernel must not write between rows.
        if (gap) for (u64 n = 0; n < got.data.size(); n++) if (n % (d + gap) >= d && plain(got.data[n]) != plain(convert<T>(-99.0f))) worst.add(9, 0);
        bad |= worst.bad();
    };
#ifdef KEYS
    u32 tiles = (u32)((s + BLOCK_ROWS - 1) / BLOCK_ROWS), all_heads = (u32)(b * kv);
#else
    u32 tiles = (u32)((l + BLOCK_ROWS - 1) / BLOCK_ROWS), all_heads = (u32)(b * heads);
#endif
#ifdef WARPGROUP
    u64 padded = l;
    Three grid = {(all_heads + together - 1) / together, tiles, together};
#else
    u64 padded = (l + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;
    Order order = {tiles, all_heads, together};
    Three grid = {blocks, 1, 1};
#endif
    std::vector<Vec<Row, 2>> room(b * heads * padded / 2 + 1, Vec<Row, 2>{{{7, 7}, {7, 7}}});
    Row* rows = (Row*)room.data();
#ifdef FORWARD
#ifdef WARPGROUP
    machine::launch(grid, THREADS, [&] { flash(spec, out.data.data(), out.strides[0], out.strides[1], out.strides[2], got_lse.data()); });
#else
    auto mq = q.meaning(BLOCK_ROWS), mk = k.meaning(STEP), mv = v.meaning(STEP);
    machine::launch(grid, THREADS, [&] { flash_hopper_forward(spec, order, map_of(mq), map_of(mk), map_of(mv), out.data.data(), out.strides[0], out.strides[1], out.strides[2], got_lse.data()); });
#endif
    compare("out", out, o);
    Worst worst{"lse"};
    for (u64 n = 0; n < lse.size(); n++) if (lse[n] != got_lse[n]) worst.add(got_lse[n], lse[n]);
    bad |= worst.bad();
#endif
#ifdef QUERIES
#ifdef WARPGROUP
    machine::launch(grid, THREADS, [&] { flash_queries(spec, saved, rows, dq.data.data(), dq.strides[0], dq.strides[1], dq.strides[2]); });
#else
    auto mq = q.meaning(BLOCK_ROWS), mk = k.meaning(STEP), mv = v.meaning(STEP), md = dout.meaning(BLOCK_ROWS);
    machine::launch(grid, THREADS, [&] { flash_hopper_queries(spec, saved, order, map_of(mq), map_of(mk), map_of(mv), map_of(md), rows, dq.data.data(), dq.strides[0], dq.strides[1], dq.strides[2]); });
#endif
    compare("dq", dq, gq);
    Worst sums{"rows"};
    for (u64 n = 0; n < b * heads; n++) for (u64 i = 0; i < padded; i++) {
        Row got = rows[n * padded + i];
        bool there = i < l;
        if (there && lse[n * l + i] > -1e30) sums.add(got.log_sum, lse[n * l + i] * LOG2E);
        else if (got.log_sum != (float)INFINITY) sums.add(1, 0);
        sums.add(got.delta, there ? delta[n * l + i] : 0);
    }
    bad |= sums.bad();
#endif
#ifdef KEYS
    for (u64 n = 0; n < b * heads; n++) for (u64 i = 0; i < padded; i++)
        rows[n * padded + i] = i < l ? Row{saved_sum(lse[n * l + i]), (float)delta[n * l + i]} : Row{(float)INFINITY, 0};
#ifdef WARPGROUP
    machine::launch(grid, THREADS, [&] { flash_keys(spec, saved, rows, dk.data.data(), dv.data.data(), dk.strides[0], dk.strides[1], dk.strides[2], dv.strides[0], dv.strides[1], dv.strides[2]); });
    if (GRADS & 2) compare("dk", dk, gk);
    if (GRADS & 1) compare("dv", dv, gv);
#else
    auto mq = q.meaning(STEP), mk = k.meaning(BLOCK_ROWS), mv = v.meaning(BLOCK_ROWS), md = dout.meaning(STEP);
    machine::launch(grid, THREADS, [&] { flash_hopper_keys(spec, order, map_of(mq), map_of(mk), map_of(mv), map_of(md), rows, padded, dk.data.data(), dv.data.data(), dk.strides[0], dk.strides[1], dk.strides[2], dv.strides[0], dv.strides[1], dv.strides[2]); });
    compare("dk", dk, gk);
    compare("dv", dv, gv);
#endif
#endif
    return bad;
}

int main(int argc, char** argv) {
    machine::dice.seed(argc > 1 ? atoi(argv[1]) : 1);
    bool bad = false;
#ifdef WARPGROUP
    // Products of single warps take longer to emulate.
    bad |= check(1, 2, 1, 76, 140, D, true, 8, 0, 2);
    bad |= check(1, 1, 1, 130, 67, D - 24, false, 0, 0, 1);
    // A mask whose rows are whole vectors.
    if (MASK) bad |= check(1, 2, 2, 70, 144, D, false, 0, 0, 2);
    return bad;
#endif
    // Many steps and tasks for one block; heads that share keys; rows with gaps; odd sizes.
    bad |= check(1, 1, 1, 650, 650, D, false, 0, 1, 1);
    bad |= check(2, 2, 1, 200, 330, D, true, 8, 3, 2);
    bad |= check(1, 3, 3, 390, 260, D - 24, true, 0, 2, 2);
    if (MASK) bad |= check(1, 2, 2, 200, 336, D, false, 0, 2, 1);
    return bad;
}
