/** A picture that a person showed. One that lies elsewhere is a link: looking at it would tell its owner. */

import type { ReactNode } from "react";
import { safeUrl } from "../markdown/safe-url";

const OWN = /^data:image\/(?:png|jpeg|gif|webp|avif);base64,/;

export function Picture({ url }: { readonly url: string }): ReactNode {
  if (OWN.test(url)) return <img className="picture" src={url} alt="Picture" />;
  const address = safeUrl(url);
  if (address === null) return <span>(a picture)</span>;
  return (
    <a href={address} target="_blank" rel="noopener noreferrer nofollow">
      Picture
    </a>
  );
}
