/* What a transformer block does between its matrix products, and the recurrent step of the operators, on one CPU thread.
 *
 * Compiled once per number type (-DREAL=float or double) by library.py. Every array is contiguous; "stack" counts models that
 * are trained together, each with its own weights and "rows" rows of its own. No fast-math: a NaN or an infinity does
 * not get lost, and sums run in a fixed order.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t i64;
#define INLINE inline __attribute__((always_inline))
#define LANES ((i64)(64 / sizeof(REAL)))
#define FLUSH 64 /* rows summed apart before they join a gradient: keeps long float32 sums exact to a few units */

typedef REAL vec __attribute__((vector_size(64), aligned(8), may_alias));
#if REAL_BYTES == 4
typedef int32_t INTEGER;
typedef INTEGER ivec __attribute__((vector_size(64), aligned(8), may_alias));
#define ROUNDER 12582912.0f /* 1.5 * 2^23 */
#define MANTISSA 23
#define BIAS 127
#define TERMS 7
#define SQRT sqrtf
#else
typedef int64_t INTEGER;
typedef INTEGER ivec __attribute__((vector_size(64), aligned(8), may_alias));
#define ROUNDER 6755399441055744.0 /* 1.5 * 2^52 */
#define MANTISSA 52
#define BIAS 1023
#define TERMS 13
#define SQRT sqrt
#endif

static const REAL INVERSE_FACTORIAL[14] = {
    (REAL)1.0, (REAL)1.0, (REAL)0.5, (REAL)1.6666666666666666e-1, (REAL)4.1666666666666664e-2, (REAL)8.3333333333333332e-3,
    (REAL)1.3888888888888889e-3, (REAL)1.9841269841269841e-4, (REAL)2.4801587301587302e-5, (REAL)2.7557319223985893e-6,
    (REAL)2.7557319223985888e-7, (REAL)2.505210838544172e-8, (REAL)2.08767569878681e-9, (REAL)1.6059043836821613e-10};

/* exp(x) for |x| < 80: x = n ln 2 + r, Taylor in r, n into the exponent. Accurate to about one unit in the last place. */
static INLINE vec exponential(vec x) {
    const vec zero = {0};
    vec shifted = x * (REAL)1.4426950408889634 + (zero + (REAL)ROUNDER);
    vec n = shifted - (REAL)ROUNDER;
    vec r = x - n * (REAL)0.693359375; /* ln 2 in two parts, the first exact in few bits */
    r = r + n * (REAL)2.12194440054690583e-4;
    vec p = zero + INVERSE_FACTORIAL[TERMS];
    for (int k = TERMS - 1; k >= 0; k--) p = p * r + INVERSE_FACTORIAL[k];
    vec base = zero + (REAL)ROUNDER;
    ivec power = (((ivec)shifted - (ivec)base) + BIAS) << MANTISSA;
    return p * (vec)power;
}

#ifdef __clang__
#define PERMUTE(x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define PERMUTE(x, ...) __builtin_shuffle(x, (ivec){__VA_ARGS__})
#endif
#if REAL_BYTES == 4
static const ivec LANE_NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static INLINE vec swap_pairs(vec x) { return PERMUTE(x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14); }
static INLINE REAL lane_sum(vec x) {
    x += PERMUTE(x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
    x += PERMUTE(x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
    x += PERMUTE(x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
    x += swap_pairs(x);
    return x[0];
}
#else
static const ivec LANE_NUMBERS = {0, 1, 2, 3, 4, 5, 6, 7};
static INLINE vec swap_pairs(vec x) { return PERMUTE(x, 1, 0, 3, 2, 5, 4, 7, 6); }
static INLINE REAL lane_sum(vec x) {
    x += PERMUTE(x, 4, 5, 6, 7, 0, 1, 2, 3);
    x += PERMUTE(x, 2, 3, 0, 1, 6, 7, 4, 5);
    x += swap_pairs(x);
    return x[0];
}
#endif

static INLINE i64 up(i64 n, i64 unit) { return (n + unit - 1) / unit * unit; }

/* out = x / sqrt(mean(x^2) + eps) * weight, rows of "width". */
void rms_norm(const REAL *x, const REAL *weight, REAL *out, i64 stack, i64 rows, i64 width, double eps) {
    for (i64 s = 0; s < stack; s++, weight += width)
        for (i64 row = 0; row < rows; row++, x += width, out += width) {
            REAL sum = 0;
#pragma omp simd reduction(+ : sum)
            for (i64 i = 0; i < width; i++) sum += x[i] * x[i];
            const REAL scale = 1 / SQRT(sum / width + (REAL)eps);
#pragma omp simd
            for (i64 i = 0; i < width; i++) out[i] = x[i] * scale * weight[i];
        }
}

/* Gradient of rms_norm: grad_x = residual + J^T grad, grad_weight += sum over rows; and the norm itself again into "normed".
 * residual and normed may be null. partial: scratch [width]. */
void rms_norm_backward(const REAL *x, const REAL *weight, const REAL *grad, const REAL *residual, REAL *grad_x, REAL *normed,
                       REAL *grad_weight, REAL *partial, i64 stack, i64 rows, i64 width, double eps) {
    for (i64 s = 0; s < stack; s++, weight += width, grad_weight += width) {
        memset(partial, 0, width * sizeof(REAL));
        for (i64 row = 0; row < rows; row++, x += width, grad += width, grad_x += width) {
            REAL sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
            for (i64 i = 0; i < width; i++) {
                sum += x[i] * x[i];
                along += x[i] * grad[i] * weight[i];
            }
            const REAL scale = 1 / SQRT(sum / width + (REAL)eps);
            const REAL back = along * scale * scale * scale / width;
            if (residual) {
#pragma omp simd
                for (i64 i = 0; i < width; i++) grad_x[i] = residual[i] + (grad[i] * weight[i] * scale - x[i] * back);
                residual += width;
            } else {
#pragma omp simd
                for (i64 i = 0; i < width; i++) grad_x[i] = grad[i] * weight[i] * scale - x[i] * back;
            }
            if (normed) {
#pragma omp simd
                for (i64 i = 0; i < width; i++) {
                    const REAL hat = x[i] * scale;
                    normed[i] = hat * weight[i];
                    partial[i] += hat * grad[i];
                }
                normed += width;
            } else {
#pragma omp simd
                for (i64 i = 0; i < width; i++) partial[i] += x[i] * scale * grad[i];
            }
            if ((row + 1) % FLUSH == 0 || row + 1 == rows) {
                for (i64 i = 0; i < width; i++) grad_weight[i] += partial[i];
                memset(partial, 0, width * sizeof(REAL));
            }
        }
    }
}

/* squared = relu(x)^2; a NaN stays one. */
void relu_square(const REAL *x, REAL *squared, i64 count) {
#pragma omp simd
    for (i64 i = 0; i < count; i++) {
        const REAL positive = x[i] < 0 ? 0 : x[i];
        squared[i] = positive * positive;
    }
}

/* grad *= factor * relu(x) in place, and relu(x)^2 again into "squared". factor 2 is the derivative. */
void relu_square_backward(const REAL *x, REAL *grad, REAL *squared, i64 count, double factor) {
    const REAL f = (REAL)factor;
#pragma omp simd
    for (i64 i = 0; i < count; i++) {
        const REAL positive = x[i] < 0 ? 0 : x[i];
        grad[i] *= f * positive;
        squared[i] = positive * positive;
    }
}

/* c[0..7][0..LANES) = sum over k < depth of a[r * a_row + k * a_step] * b[k * b_step + lane]. */
static INLINE void tile(const REAL *restrict a, i64 a_row, i64 a_step, const REAL *restrict b, i64 b_step, i64 depth,
                        REAL *restrict c, i64 c_row) {
    vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0}, s4 = {0}, s5 = {0}, s6 = {0}, s7 = {0};
    for (i64 k = 0; k < depth; k++, a += a_step, b += b_step) {
        const vec right = *(const vec *)b;
        s0 += a[0] * right;
        s1 += a[a_row] * right;
        s2 += a[2 * a_row] * right;
        s3 += a[3 * a_row] * right;
        s4 += a[4 * a_row] * right;
        s5 += a[5 * a_row] * right;
        s6 += a[6 * a_row] * right;
        s7 += a[7 * a_row] * right;
    }
    *(vec *)c = s0;
    *(vec *)(c + c_row) = s1;
    *(vec *)(c + 2 * c_row) = s2;
    *(vec *)(c + 3 * c_row) = s3;
    *(vec *)(c + 4 * c_row) = s4;
    *(vec *)(c + 5 * c_row) = s5;
    *(vec *)(c + 6 * c_row) = s6;
    *(vec *)(c + 7 * c_row) = s7;
}

/* One (row, head) of attention in the cache. time and head width are padded with zeros: "wide" positions (a multiple of 16) and
 * "flat" coordinates (a multiple of LANES). */
typedef struct {
    REAL *q, *k, *v, *grad_out;             /* [wide][flat]; q and k turned and normed, q also scaled */
    REAL *k_turned, *v_turned;              /* [flat][wide] */
    REAL *q_scale, *k_scale;                /* [wide]: 1 / sqrt(mean square + eps) */
    REAL *weights, *grad_scores;            /* [wide][wide], zero above the diagonal inside each block of 8 rows */
    REAL *result, *result_2;                /* [wide][flat] */
    REAL *cosine, *sine;                    /* [wide][flat]: (c, c) and (-s, s) of each pair */
} Head;

static REAL *open_head(Head *h, const REAL *rope, i64 time, i64 head) {
    const i64 wide = up(time, 16), flat = up(head, LANES), part = wide * flat, square = wide * wide;
    const i64 count = 10 * part + 2 * square + 2 * wide;
    REAL *memory = aligned_alloc(64, up(count * sizeof(REAL), 64));
    if (!memory) return NULL;
    memset(memory, 0, count * sizeof(REAL));
    REAL **places[10] = {&h->q, &h->k, &h->v, &h->grad_out, &h->k_turned, &h->v_turned, &h->result, &h->result_2, &h->cosine, &h->sine};
    for (int i = 0; i < 10; i++) *places[i] = memory + i * part;
    h->weights = memory + 10 * part, h->grad_scores = h->weights + square;
    h->q_scale = h->grad_scores + square, h->k_scale = h->q_scale + wide;
    for (i64 t = 0; t < time; t++)
        for (i64 i = 0; i < head; i++) {
            h->cosine[t * flat + i] = rope[t * head + (i & ~1)];
            h->sine[t * flat + i] = i % 2 ? rope[t * head + i] : -rope[t * head + i + 1];
        }
    return memory;
}

/* Copy rows of "head" numbers into the cache. The padding is cleared, since a NaN of the last head may be in it. */
static INLINE void load(const REAL *restrict from, i64 stride, REAL *restrict to, i64 time, const i64 head) {
    const i64 flat = up(head, LANES);
    for (i64 t = 0; t < time; t++, from += stride, to += flat) {
        if (head % LANES == 0)
            for (i64 i = 0; i < head; i += LANES) *(vec *)(to + i) = *(const vec *)(from + i);
        else {
            for (i64 i = 0; i < head; i++) to[i] = from[i];
            for (i64 i = head; i < flat; i++) to[i] = 0;
        }
    }
}

/* Copy rows of "head" numbers out of the cache. */
static INLINE void store(const REAL *restrict from, REAL *restrict to, i64 stride, i64 time, const i64 head) {
    const i64 flat = up(head, LANES);
    for (i64 t = 0; t < time; t++, from += flat, to += stride) {
        if (head % LANES == 0)
            for (i64 i = 0; i < head; i += LANES) *(vec *)(to + i) = *(const vec *)(from + i);
        else
            for (i64 i = 0; i < head; i++) to[i] = from[i];
    }
}

/* In place: RoPE, x -> x (c, c) + swapped x (-s, s), and the norm without weights, times "extra". */
static INLINE void turn(REAL *x, const REAL *cosine, const REAL *sine, i64 time, const i64 head, REAL eps, REAL extra, REAL *scales) {
    const i64 flat = up(head, LANES);
    for (i64 t = 0; t < time; t++, x += flat, cosine += flat, sine += flat) {
        vec squares = {0};
        for (i64 i = 0; i < flat; i += LANES) {
            const vec here = *(vec *)(x + i);
            const vec turned = here * *(const vec *)(cosine + i) + swap_pairs(here) * *(const vec *)(sine + i);
            squares += turned * turned;
            *(vec *)(x + i) = turned;
        }
        const REAL scale = 1 / SQRT(lane_sum(squares) / head + eps);
        scales[t] = scale;
        for (i64 i = 0; i < flat; i += LANES) *(vec *)(x + i) *= scale * extra;
    }
}

/* Back through norm and RoPE, in place: grad of the normed, turned vector (which carries the factor extra) to that of x. */
static INLINE void turn_back(REAL *grad, const REAL *normed, const REAL *scales, REAL extra, const REAL *cosine, const REAL *sine,
                             i64 time, const i64 head) {
    const i64 flat = up(head, LANES);
    for (i64 t = 0; t < time; t++, grad += flat, normed += flat, cosine += flat, sine += flat) {
        vec products = {0};
        for (i64 i = 0; i < flat; i += LANES) products += *(vec *)(grad + i) * *(const vec *)(normed + i);
        const REAL outer = scales[t] * extra, inner = scales[t] * lane_sum(products) / (extra * head);
        for (i64 i = 0; i < flat; i += LANES) {
            const vec turned = *(vec *)(grad + i) * outer - *(const vec *)(normed + i) * inner;
            *(vec *)(grad + i) = turned * *(const vec *)(cosine + i) + swap_pairs(turned * *(const vec *)(sine + i));
        }
    }
}

static INLINE void transpose(const REAL *restrict from, REAL *restrict to, i64 time, const i64 head) {
    const i64 wide = up(time, 16), flat = up(head, LANES);
    for (i64 t = 0; t < time; t++)
        for (i64 i = 0; i < head; i++) to[i * wide + t] = from[t * flat + i];
}

static INLINE void load_head(const Head *h, const REAL *qkv, i64 width, const REAL eps, i64 time, const i64 head) {
    const i64 flat = up(head, LANES);
    load(qkv, 3 * width, h->q, time, head);
    load(qkv + width, 3 * width, h->k, time, head);
    load(qkv + 2 * width, 3 * width, h->v, time, head);
    turn(h->q, h->cosine, h->sine, time, head, eps, 1 / SQRT((REAL)head), h->q_scale);
    turn(h->k, h->cosine, h->sine, time, head, eps, 1, h->k_scale);
    transpose(h->k, h->k_turned, time, head);
}

/* Causal softmax(q k^T) into h->weights. Normed q and k bound the scores by sqrt(head width): no maximum is subtracted. */
static INLINE void attend(const Head *h, i64 time, const i64 head) {
    const i64 wide = up(time, 16), flat = up(head, LANES);
    for (i64 i0 = 0; i0 < time; i0 += 8) {
        const i64 columns = up(i0 + 8, LANES);
        REAL *row = h->weights + i0 * wide;
        for (i64 j = 0; j < columns; j += LANES) tile(h->q + i0 * flat, flat, 1, h->k_turned + j, wide, head, row + j, wide);
        for (i64 i = i0; i < i0 + 8; i++, row += wide) {
            vec sums = {0};
            for (i64 j = 0; j < columns; j += LANES) {
                const vec inside = (vec)((ivec)exponential(*(vec *)(row + j)) & (LANE_NUMBERS <= (INTEGER)(i - j)));
                sums += inside;
                *(vec *)(row + j) = inside;
            }
            const REAL scale = i < time ? 1 / lane_sum(sums) : 0; /* rows of padding weigh nothing */
            for (i64 j = 0; j < columns; j += LANES) *(vec *)(row + j) *= scale;
        }
    }
}

static INLINE int attention_of(const REAL *qkv, const REAL *rope, REAL *out, i64 rows, i64 time, i64 heads, double eps,
                               const i64 head) {
    Head h;
    REAL *memory = open_head(&h, rope, time, head);
    if (!memory) return 1;
    const i64 width = heads * head, wide = up(time, 16), flat = up(head, LANES);
    for (i64 row = 0; row < rows; row++, qkv += time * 3 * width, out += time * width)
        for (i64 n = 0; n < heads; n++) {
            load_head(&h, qkv + n * head, width, (REAL)eps, time, head);
            attend(&h, time, head);
            for (i64 i = 0; i < time; i += 8)
                for (i64 c = 0; c < head; c += LANES)
                    tile(h.weights + i * wide, wide, 1, h.v + c, flat, i + 8 < time ? i + 8 : time, h.result + i * flat + c, flat);
            store(h.result, out + n * head, width, time, head);
        }
    free(memory);
    return 0;
}

/* The head width as a constant where it is a usual one: loops over it then unroll. */
#define WITH_CONSTANT_HEAD(function, ...)        \
    switch (head) {                              \
    case 16: return function(__VA_ARGS__, 16);   \
    case 32: return function(__VA_ARGS__, 32);   \
    case 64: return function(__VA_ARGS__, 64);   \
    default: return function(__VA_ARGS__, head); \
    }

/* Causal attention with RoPE and qk-norm: qkv [rows, time, 3, heads, head], rope [time, head / 2, 2], out [rows, time, heads,
 * head]. Returns 0, or 1 without memory. */
int attention(const REAL *qkv, const REAL *rope, REAL *out, i64 rows, i64 time, i64 heads, i64 head, double eps) {
    WITH_CONSTANT_HEAD(attention_of, qkv, rope, out, rows, time, heads, eps)
}

static INLINE int attention_backward_of(const REAL *qkv, const REAL *rope, const REAL *grad_out, REAL *grad_qkv, i64 rows,
                                        i64 time, i64 heads, double eps, const i64 head) {
    Head h;
    REAL *memory = open_head(&h, rope, time, head);
    if (!memory) return 1;
    const i64 width = heads * head, wide = up(time, 16), flat = up(head, LANES);
    for (i64 row = 0; row < rows; row++, qkv += time * 3 * width, grad_qkv += time * 3 * width, grad_out += time * width)
        for (i64 n = 0; n < heads; n++) {
            load_head(&h, qkv + n * head, width, (REAL)eps, time, head);
            transpose(h.v, h.v_turned, time, head);
            load(grad_out + n * head, width, h.grad_out, time, head);
            attend(&h, time, head);
            for (i64 i0 = 0; i0 < time; i0 += 8) {
                const i64 columns = up(i0 + 8, LANES);
                REAL *grad = h.grad_scores + i0 * wide;
                const REAL *weights = h.weights + i0 * wide;
                for (i64 j = 0; j < columns; j += LANES)
                    tile(h.grad_out + i0 * flat, flat, 1, h.v_turned + j, wide, head, grad + j, wide);
                for (i64 i = i0; i < i0 + 8; i++, grad += wide, weights += wide) {
                    vec sums = {0};
                    for (i64 j = 0; j < columns; j += LANES) sums += *(vec *)(grad + j) * *(const vec *)(weights + j);
                    const REAL along = lane_sum(sums);
                    for (i64 j = 0; j < columns; j += LANES)
                        *(vec *)(grad + j) = *(const vec *)(weights + j) * (*(vec *)(grad + j) - along);
                }
            }
            REAL *grad = grad_qkv + n * head;
            for (i64 i = 0; i < time; i += 8)
                for (i64 c = 0; c < head; c += LANES)
                    tile(h.grad_scores + i * wide, wide, 1, h.k + c, flat, i + 8 < time ? i + 8 : time, h.result + i * flat + c, flat);
            turn_back(h.result, h.q, h.q_scale, 1 / SQRT((REAL)head), h.cosine, h.sine, time, head);
            store(h.result, grad, 3 * width, time, head);
            for (i64 j = 0; j < time; j += 8)
                for (i64 c = 0; c < head; c += LANES) {
                    const i64 from = j * wide + j, at = j * flat + c;
                    tile(h.grad_scores + from, 1, wide, h.q + at, flat, time - j, h.result + at, flat);
                    tile(h.weights + from, 1, wide, h.grad_out + at, flat, time - j, h.result_2 + at, flat);
                }
            turn_back(h.result, h.k, h.k_scale, 1, h.cosine, h.sine, time, head);
            store(h.result, grad + width, 3 * width, time, head);
            store(h.result_2, grad + 2 * width, 3 * width, time, head);
        }
    free(memory);
    return 0;
}

/* Gradient of attention, all of it recomputed from qkv: grad_out [rows, time, heads, head] to grad_qkv. */
int attention_backward(const REAL *qkv, const REAL *rope, const REAL *grad_out, REAL *grad_qkv, i64 rows, i64 time, i64 heads,
                       i64 head, double eps) {
    WITH_CONSTANT_HEAD(attention_backward_of, qkv, rope, grad_out, grad_qkv, rows, time, heads, eps)
}

/* out = decay * h + drive, decay [stack, width]. */
void diagonal_step(const REAL *h, const REAL *decay, const REAL *drive, REAL *out, i64 stack, i64 rows, i64 width) {
    for (i64 s = 0; s < stack; s++, decay += width)
        for (i64 row = 0; row < rows; row++, h += width, drive += width, out += width)
#pragma omp simd
            for (i64 i = 0; i < width; i++) out[i] = decay[i] * h[i] + drive[i];
}

/* grad_h = decay * grad, grad_decay += sum over rows of grad * h. partial: scratch [width]. */
void diagonal_step_backward(const REAL *h, const REAL *decay, const REAL *grad, REAL *grad_h, REAL *grad_decay, REAL *partial,
                            i64 stack, i64 rows, i64 width) {
    for (i64 s = 0; s < stack; s++, decay += width, grad_decay += width) {
        memset(partial, 0, width * sizeof(REAL));
        for (i64 row = 0; row < rows; row++, h += width, grad += width, grad_h += width) {
#pragma omp simd
            for (i64 i = 0; i < width; i++) {
                partial[i] += grad[i] * h[i];
                grad_h[i] = grad[i] * decay[i];
            }
            if ((row + 1) % FLUSH == 0 || row + 1 == rows) {
                for (i64 i = 0; i < width; i++) grad_decay[i] += partial[i];
                memset(partial, 0, width * sizeof(REAL));
            }
        }
    }
}

/* Each plane (a, b) to m (a, b) + drive, m = c (cos, sin) [stack, width / 2, 2]. */
void planar_step(const REAL *h, const REAL *m, const REAL *drive, REAL *out, i64 stack, i64 rows, i64 width) {
    for (i64 s = 0; s < stack; s++, m += width)
        for (i64 row = 0; row < rows; row++, h += width, drive += width, out += width)
#pragma omp simd
            for (i64 i = 0; i < width; i += 2) {
                const REAL a = h[i], b = h[i + 1], c = m[i], sine = m[i + 1];
                out[i] = a * c - b * sine + drive[i];
                out[i + 1] = b * c + a * sine + drive[i + 1];
            }
}

/* grad_h = m^T grad, grad_m += sum over rows. partial: scratch [width]. */
void planar_step_backward(const REAL *h, const REAL *m, const REAL *grad, REAL *grad_h, REAL *grad_m, REAL *partial, i64 stack,
                          i64 rows, i64 width) {
    for (i64 s = 0; s < stack; s++, m += width, grad_m += width) {
        memset(partial, 0, width * sizeof(REAL));
        for (i64 row = 0; row < rows; row++, h += width, grad += width, grad_h += width) {
#pragma omp simd
            for (i64 i = 0; i < width; i += 2) {
                const REAL a = h[i], b = h[i + 1], c = m[i], sine = m[i + 1], p = grad[i], q = grad[i + 1];
                grad_h[i] = p * c + q * sine;
                grad_h[i + 1] = q * c - p * sine;
                partial[i] += p * a + q * b;
                partial[i + 1] += q * a - p * b;
            }
            if ((row + 1) % FLUSH == 0 || row + 1 == rows) {
                for (i64 i = 0; i < width; i++) grad_m[i] += partial[i];
                memset(partial, 0, width * sizeof(REAL));
            }
        }
    }
}
