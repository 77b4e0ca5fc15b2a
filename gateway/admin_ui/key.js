// The key: kept for this tab only, sent as a header, never part of an address.

const NAME = "duet-admin-key";

export const key = {
  get: () => sessionStorage.getItem(NAME),
  set: (value) => sessionStorage.setItem(NAME, value),
  forget: () => sessionStorage.removeItem(NAME),
};
