"use strict";
// Opens the page with its passphrase: scrypt (RFC 7914), then AES-GCM by WebCrypto. Nothing leaves this window.
const sealed = document.getElementById("sealed");
const bytesOf = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));

async function pbkdf2(secret, salt, length) {
  const key = await crypto.subtle.importKey("raw", secret, "PBKDF2", false, ["deriveBits"]);
  const rule = { name: "PBKDF2", hash: "SHA-256", salt, iterations: 1 };
  return new Uint8Array(await crypto.subtle.deriveBits(rule, key, 8 * length));
}

const STEPS = [
  [4, 0, 12], [8, 4, 0], [12, 8, 4], [0, 12, 8], [9, 5, 1], [13, 9, 5], [1, 13, 9], [5, 1, 13],
  [14, 10, 6], [2, 14, 10], [6, 2, 14], [10, 6, 2], [3, 15, 11], [7, 3, 15], [11, 7, 3], [15, 11, 7],
  [1, 0, 3], [2, 1, 0], [3, 2, 1], [0, 3, 2], [6, 5, 4], [7, 6, 5], [4, 7, 6], [5, 4, 7],
  [11, 10, 9], [8, 11, 10], [9, 8, 11], [10, 9, 8], [12, 15, 14], [13, 12, 15], [14, 13, 12], [15, 14, 13],
].flat();
const TURNS = [7, 9, 13, 18];

function salsa8(block, x) {
  x.set(block);
  for (let twice = 0; twice < 4; twice++) {
    for (let step = 0; step < 32; step++) {
      const at = 3 * step, turn = TURNS[step & 3], sum = (x[STEPS[at + 1]] + x[STEPS[at + 2]]) | 0;
      x[STEPS[at]] ^= (sum << turn) | (sum >>> (32 - turn));
    }
  }
  for (let word = 0; word < 16; word++) block[word] = (block[word] + x[word]) | 0;
}

function mixBlocks(from, to, size, one, x) {
  one.set(from.subarray((2 * size - 1) * 16, 2 * size * 16));
  for (let number = 0; number < 2 * size; number++) {
    for (let word = 0; word < 16; word++) one[word] ^= from[number * 16 + word];
    salsa8(one, x);
    to.set(one, ((number >> 1) + (number & 1) * size) * 16);
  }
}

function mix(block, cost, size) {
  const words = 32 * size, kept = new Int32Array(cost * words), one = new Int32Array(16), x = new Int32Array(16);
  let now = block, next = new Int32Array(words);
  for (let number = 0; number < cost; number++) {
    kept.set(now, number * words);
    mixBlocks(now, next, size, one, x);
    [now, next] = [next, now];
  }
  for (let number = 0; number < cost; number++) {
    const from = (now[words - 16] & (cost - 1)) * words;
    for (let word = 0; word < words; word++) now[word] ^= kept[from + word];
    mixBlocks(now, next, size, one, x);
    [now, next] = [next, now];
  }
  return now;
}

async function scrypt(secret, salt, cost, size, length) {
  const first = await pbkdf2(secret, salt, 128 * size);
  const mixed = mix(new Int32Array(first.buffer), cost, size);
  return pbkdf2(secret, new Uint8Array(mixed.buffer, mixed.byteOffset, mixed.byteLength), length);
}

async function opened(passphrase) {
  const { format, cost, block, salt, nonce } = sealed.dataset;
  const secret = new TextEncoder().encode(passphrase.normalize("NFC"));
  const raw = await scrypt(secret, bytesOf(salt), Number(cost), Number(block), 32);
  const key = await crypto.subtle.importKey("raw", raw, "AES-GCM", false, ["decrypt"]);
  const rule = { name: "AES-GCM", iv: bytesOf(nonce), additionalData: new TextEncoder().encode(format) };
  return new TextDecoder().decode(await crypto.subtle.decrypt(rule, key, bytesOf(sealed.dataset.sealed)));
}

sealed.querySelector("form").addEventListener("submit", async event => {
  event.preventDefault();
  const status = sealed.querySelector("[role=status]"), field = document.getElementById("passphrase");
  status.textContent = status.dataset.working;
  await new Promise(done => setTimeout(done, 30));
  try {
    const page = new DOMParser().parseFromString(await opened(field.value), "text/html");
    document.replaceChild(document.adoptNode(page.documentElement), document.documentElement);
    scrollTo(0, 0);
  } catch (error) {
    status.textContent = status.dataset.wrong;
    field.select();
  }
});
